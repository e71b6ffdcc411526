"use strict";
// Fetches the page again and again, and puts what has changed in its place. A node that stays is not
// touched: so focus, selection, scrolling and open details stay as well.
(() => {
  const PERIOD_MS = 2000, PAUSE_MS = 5000, DEADLINE_MS = 5000, TYPING_MS = 200;
  const main = document.querySelector("main");
  const updated = document.getElementById("updated");
  const trouble = document.getElementById("trouble");
  const clock = () => new Date().toTimeString().slice(0, 8);
  let last = clock(), turn = 0, next = 0, typing = 0;

  const say = (node, text) => { if (node.textContent !== text) node.textContent = text; };

  const morph = (old, fresh) => {
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
      return;
    }
    if (old.matches("input, select")) {
      if (old === document.activeElement) return;
      if (old.value !== fresh.value) old.value = fresh.value;
      old.checked = fresh.checked;
      return;
    }
    for (const { name, value } of fresh.attributes) {
      if (name !== "open" && old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    for (const { name } of [...old.attributes]) {
      if (name !== "open" && !fresh.hasAttribute(name)) old.removeAttribute(name);
    }
    morphChildren(old, fresh);
  };

  const morphChildren = (old, fresh) => {
    const key = node => node.dataset?.key;
    const keyed = new Map([...old.children].filter(key).map(child => [key(child), child]));
    let at = old.firstChild;
    for (const child of [...fresh.childNodes]) {
      const alike = at && !key(at) && at.nodeName === child.nodeName ? at : null;
      const same = key(child) ? keyed.get(key(child)) : alike;
      if (!same) {
        old.insertBefore(child, at);
        continue;
      }
      if (same === at) at = at.nextSibling;
      else old.insertBefore(same, at);
      morph(same, child);
    }
    while (at) {
      const gone = at;
      at = at.nextSibling;
      gone.remove();
    }
  };

  const render = text => {
    const focused = document.activeElement;
    const inMain = main.contains(focused);
    const page = new DOMParser().parseFromString(text, "text/html");
    morph(main, page.querySelector("main"));
    if (!inMain || document.activeElement === focused) return;
    // A row that has moved loses its focus; one that is gone leaves it to the page.
    (focused.isConnected ? focused : main).focus({ preventScroll: true });
  };

  const show = async () => {
    clearTimeout(next);
    const mine = ++turn;
    let wait = PERIOD_MS, problem = "";
    try {
      const answer = await fetch(location.href, {
        headers: { accept: "text/html" }, signal: AbortSignal.timeout(DEADLINE_MS),
      });
      const text = await answer.text();
      if (mine !== turn) return;
      if (answer.ok) {
        render(text);
        last = clock();
      } else problem = answer.status === 401 ? "signed out; reload this page" : `status ${answer.status}`;
    } catch {
      if (mine !== turn) return;
      problem = "no answer";
    }
    if (problem) wait = PAUSE_MS;
    say(updated, problem ? "" : `updated ${last}`);
    say(trouble, problem ? `not updated since ${last} (${problem}); trying again` : "");
    next = setTimeout(refresh, wait);
  };

  const refresh = () => { if (!document.hidden) show(); };

  // The form's fields as an address, without the empty ones.
  const search = form => {
    clearTimeout(typing);
    const fields = [...new FormData(form)].filter(([, value]) => value !== "");
    const query = new URLSearchParams(fields).toString();
    history.replaceState(null, "", location.pathname + (query ? `?${query}` : ""));
    show();
  };

  main.addEventListener("input", event => {
    clearTimeout(typing);
    typing = setTimeout(search, TYPING_MS, event.target.form);
  });
  main.addEventListener("submit", event => {
    event.preventDefault();
    search(event.target);
  });
  main.addEventListener("click", event => {
    const link = event.target.closest("a[data-stay]");
    if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    history.pushState(null, "", link.href);
    show();
  });
  addEventListener("popstate", show);
  document.addEventListener("visibilitychange", refresh);
  say(updated, `updated ${last}`);
  next = setTimeout(refresh, PERIOD_MS);
})();

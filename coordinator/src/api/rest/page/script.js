"use strict";
(() => {
  const state = document.getElementById("state");
  let updated = new Date();
  const open = () => new Set([...document.querySelectorAll("details[open]")].map(d => d.dataset.key));
  const update = async () => {
    if (document.hidden) return;
    try {
      const answer = await fetch(location.href, { credentials: "same-origin", signal: AbortSignal.timeout(5000) });
      if (!answer.ok) throw new Error(answer.status);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const kept = open();
      for (const details of page.querySelectorAll("details")) details.open = kept.has(details.dataset.key);
      document.querySelector("main").replaceWith(page.querySelector("main"));
      updated = new Date();
      state.textContent = "";
    } catch (error) {
      state.textContent = `not updated since ${updated.toLocaleTimeString()}`;
      clearInterval(timer);
      setTimeout(() => { timer = setInterval(update, 2000); }, 5000);
    }
  };
  let timer = setInterval(update, 2000);
})();

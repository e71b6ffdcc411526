// Hands the state of sliders and switches to the playground, and shows its numbers, chart and sentences.
"use strict";
(async () => {
  const byId = (id) => document.getElementById(id);
  const bytes = Uint8Array.from(atob(wasmBase64), (letter) => letter.charCodeAt(0));
  await wasm_bindgen({ module_or_path: bytes });
  const playground = new wasm_bindgen.Playground(location.hash);
  // The first picture has a history.
  for (let i = 0; i < 13; i++) playground.advance(5000);

  const DRAW_EVERY_MS = 100;
  let paused = false;
  let speed = 1;
  let rows = [];

  const set = (element, text) => { if (element.textContent !== text) element.textContent = text; };
  const number = (rate) => rate >= 99.95 ? rate.toFixed(0) : rate.toFixed(1);
  const press = (button, pressed, text) => {
    button.setAttribute("aria-pressed", String(pressed));
    set(button, text);
  };

  function changed() {
    // `replaceState` is refused by some browsers for files, and then the address stays as it is.
    try { history.replaceState(null, "", "#" + playground.hash()); } catch { }
    adopt();
    draw();
  }

  // Makes a row for each Envoy.
  function build() {
    byId("rows").replaceChildren();
    rows = Array.from({ length: playground.count() }, (_, envoy) => {
      const part = byId("row").content.cloneNode(true);
      const find = (selector) => part.querySelector(selector);
      const row = { tr: find("tr"), slider: find("input"), button: find("button"), wants: find(".wants"),
        has: find(".has"), admitted: find(".admitted-cell"), refused: find(".refused"), state: find(".state") };
      const view = playground.row(envoy);
      row.name = view.name;
      view.free();
      find(".swatch").style.background = `var(--b${envoy})`;
      set(find(".name"), row.name);
      row.slider.setAttribute("aria-label", `demand at ${row.name}`);
      row.slider.addEventListener("input", () => {
        playground.moveDemand(envoy, row.slider.valueAsNumber);
        changed();
      });
      row.button.addEventListener("click", () => {
        playground.cut(envoy, row.button.getAttribute("aria-pressed") !== "true");
        changed();
      });
      byId("rows").append(part);
      return row;
    });
  }

  // Shows the settings in sliders and switches, but in none that is being written in.
  function adopt() {
    const show = (id, value) => { if (document.activeElement !== byId(id)) byId(id).value = value; };
    show("capacity", Math.round(playground.capacityPosition()));
    show("safe", playground.safe());
    show("headroom", playground.headroom());
    byId("algorithm").value = playground.algorithm();
    byId("count").value = playground.count();
    set(byId("capacity-text"), number(playground.capacity()).replace(/\.0$/, ""));
    byId("capacity").setAttribute("aria-valuetext", `${playground.capacity()} requests per second`);
    set(byId("count-text"), String(playground.count()));
    press(byId("stop"), playground.isStopped(), playground.isStopped() ? "Stopped: start it" : "Stop");
    byId("restart").disabled = playground.isStopped();
    rows.forEach((row, envoy) => {
      const view = playground.row(envoy);
      if (document.activeElement !== row.slider) row.slider.value = Math.round(view.position);
      row.slider.setAttribute("aria-valuetext", `${number(view.wants)} requests per second`);
      press(row.button, view.isCut, view.isCut ? "Connect" : "Cut off");
      row.button.setAttribute("aria-label", `${view.isCut ? "Connect" : "Cut off"} ${row.name}`);
      view.free();
    });
  }

  function draw() {
    byId("chart").innerHTML = playground.chart();
    const sums = { wants: 0, refused: 0 };
    rows.forEach((row, envoy) => {
      const view = playground.row(envoy);
      for (const name of ["wants", "has", "admitted", "refused"]) set(row[name], number(view[name]));
      set(row.state, view.state);
      row.tr.classList.toggle("lacking", !view.isLeased && view.wants > 0);
      sums.wants += view.wants;
      sums.refused += view.refused;
      view.free();
    });
    set(byId("sum-wants"), number(sums.wants));
    set(byId("sum-has"), number(playground.leased()));
    set(byId("sum-admitted"), number(playground.admitted()));
    set(byId("sum-refused"), number(sums.refused));
    set(byId("elapsed"), `${Math.floor(playground.elapsed())} s`);
    tell(playground.sentences().split("\n"));
  }

  // Shows the sentences; those with other words than before, not just other numbers, are read aloud.
  function tell(sentences) {
    const place = byId("sentences");
    while (place.children.length > sentences.length) place.lastChild.remove();
    while (place.children.length < sentences.length) place.append(document.createElement("p"));
    sentences.forEach((sentence, i) => {
      set(place.children[i], sentence);
      place.children[i].classList.toggle("fault", /cut off|coordinator (is|learns)/.test(sentence));
    });
    const words = (text) => text.replace(/[\d.]+/g, "");
    const text = sentences.join(" ");
    if (words(text) !== words(byId("announcement").textContent)) set(byId("announcement"), text);
  }

  const on = (id, event, act) => byId(id).addEventListener(event, () => { act(byId(id)); changed(); });
  on("capacity", "input", (slider) => playground.moveCapacity(slider.valueAsNumber));
  on("algorithm", "change", (select) => playground.setAlgorithm(select.value));
  on("safe", "change", (input) => playground.setSafe(input.valueAsNumber));
  on("headroom", "change", (input) => playground.setHeadroom(input.valueAsNumber));
  on("count", "change", (select) => { playground.setCount(Number(select.value)); build(); });
  on("stop", "click", () => playground.stopCoordinator(!playground.isStopped()));
  on("restart", "click", () => playground.restartCoordinator());
  on("reset", "click", () => { playground.reset(); build(); });
  byId("speed").addEventListener("change", () => { speed = Number(byId("speed").value); });
  byId("pause").addEventListener("click", () => {
    paused = !paused;
    press(byId("pause"), paused, paused ? "Go on" : "Pause");
  });

  build();
  adopt();
  draw();
  document.body.dataset.ready = "yes";
  let before = performance.now();
  let drawn = before;
  const frame = (now) => {
    const passed = now - before;
    before = now;
    if (!paused) playground.advance(passed * speed);
    if (!paused && now - drawn >= DRAW_EVERY_MS) {
      drawn = now;
      draw();
    }
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
})();

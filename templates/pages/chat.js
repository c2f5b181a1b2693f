// Follow a running turn: its text as it arrives, then the page as it is stored.
"use strict";

(() => {
  let source = null;

  function follow() {
    if (source) { source.close(); source = null; }
    const live = document.getElementById("live");
    if (!live) return;
    const doing = document.getElementById("doing");
    const arriving = document.getElementById("arriving");
    const say = (text) => { doing.textContent = text; };
    const data = (event) => JSON.parse(event.data);
    let text = "";
    source = new EventSource(live.dataset.stream);
    const mine = source;
    const end = () => { mine.close(); window.reloadMain(); };
    mine.addEventListener("text", (event) => { text += data(event).text; arriving.textContent = text; doing.hidden = true; });
    mine.addEventListener("withdrawn", () => { text = ""; arriving.textContent = ""; });
    mine.addEventListener("entry", (event) => {
      if (data(event).message.role === "assistant") { text += "\n\n"; }
    });
    mine.addEventListener("tool_started", (event) => { doing.hidden = false; say(`runs ${data(event).name} …`); });
    mine.addEventListener("tool_ended", () => say("working …"));
    mine.addEventListener("queued", (event) => say(`waits behind ${data(event).ahead} others …`));
    mine.addEventListener("retrying", (event) => say(`the provider does not answer; again in ${data(event).seconds} s …`));
    mine.addEventListener("compacting", () => say("makes the conversation shorter …"));
    mine.addEventListener("outcome", end);
    mine.addEventListener("refused", end);
  }

  document.addEventListener("DOMContentLoaded", follow);
  document.addEventListener("main-replaced", follow);
  window.addEventListener("pagehide", () => { if (source) source.close(); });
})();

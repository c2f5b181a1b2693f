// Send forms without leaving the page: the answer's <main> replaces this one. Without this script they work as any form.
"use strict";

(() => {
  const parser = new DOMParser();

  function replace(html, address) {
    const page = parser.parseFromString(html, "text/html");
    const next = page.getElementById("main");
    const here = document.getElementById("main");
    if (!next) { location.assign(address); return; }
    const focused = document.activeElement && document.activeElement.id;
    const top = window.scrollY;
    document.title = page.title;
    here.replaceWith(next);
    window.scrollTo(0, top);
    const alert = next.querySelector("[role=alert], [role=status]");
    const again = focused && document.getElementById(focused);
    const wrong = next.querySelector("[aria-invalid=true]");
    if (wrong) wrong.focus();
    else if (again) again.focus({ preventScroll: true });
    else next.focus({ preventScroll: true });
    if (alert && alert.getBoundingClientRect().top < 0) alert.scrollIntoView({ block: "nearest" });
    document.dispatchEvent(new CustomEvent("main-replaced"));
  }

  // Ask for this page again and show what has changed. Another script calls it when a stream ends.
  window.reloadMain = async () => {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    replace(await answer.text(), answer.url);
  };

  // A page that will soon be different says after how many seconds to ask again.
  function again() {
    const seconds = Number(document.getElementById("main").dataset.again);
    const here = location.href;
    if (seconds) setTimeout(() => { if (location.href === here) window.reloadMain(); }, 1000 * seconds);
  }
  document.addEventListener("DOMContentLoaded", again);
  document.addEventListener("main-replaced", again);

  document.addEventListener("submit", async (event) => {
    const form = event.target;
    if (event.defaultPrevented || form.method !== "post" || "whole" in form.dataset) return;
    event.preventDefault();
    const data = new FormData(form, event.submitter);
    const isUpload = form.enctype === "multipart/form-data";
    const buttons = form.querySelectorAll("button");
    buttons.forEach((button) => { button.disabled = true; });
    try {
      const answer = await fetch(form.action, {
        method: "POST",
        body: isUpload ? data : new URLSearchParams(data),
        headers: { Accept: "text/html" },
      });
      const address = new URL(answer.url);
      if (address.pathname.endsWith("/sign-in")) { location.assign(answer.url); return; }
      if (answer.redirected && answer.url !== location.href) history.pushState(null, "", answer.url);
      replace(await answer.text(), answer.url);
    } catch {
      buttons.forEach((button) => { button.disabled = false; });
      form.submit(); // the browser shows why the server does not answer
    }
  });

  // A form that names places shows there what it would answer without a button, while somebody types.
  let typed;
  document.addEventListener("input", (event) => {
    const form = event.target.form;
    if (!form || !form.dataset.live) return;
    clearTimeout(typed);
    const mine = typed = setTimeout(async () => {
      const data = new FormData(form);
      data.append("live", "1");
      let html;
      try {
        const answer = await fetch(form.action, { method: "POST", body: new URLSearchParams(data), headers: { Accept: "text/html" } });
        html = await answer.text();
      } catch { return; } // the button says why the server does not answer
      if (mine !== typed) return; // somebody has typed on
      const page = parser.parseFromString(html, "text/html");
      for (const id of form.dataset.live.split(" ")) {
        const next = page.getElementById(id), here = document.getElementById(id);
        if (next && here && next.innerHTML !== here.innerHTML) here.replaceChildren(...next.childNodes);
      }
    }, 400);
  });

  window.addEventListener("popstate", () => location.reload());
  document.addEventListener("keydown", (event) => {
    const box = event.target;
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && box.form) box.form.requestSubmit();
  });
})();

"use strict";
(() => {
  const box = document.getElementById("filter");
  const verdict = document.getElementById("verdict");
  const rows = [...document.querySelectorAll("tr[data-verdict]")];
  const count = document.getElementById("count");

  function filter() {
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const fits = words.every((word) => row.textContent.toLowerCase().includes(word));
      row.hidden = !fits || (verdict.value !== "" && !row.dataset.verdict.split(" ").includes(verdict.value));
      if (!row.hidden && row.closest("#requirements")) shown += 1;
    }
    count.textContent = shown + " shown";
  }

  function reveal() {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    for (let part = target; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
    target.hidden = false;
    target.scrollIntoView();
  }

  async function copy(button) {
    const pre = button.parentElement.querySelector("pre");
    try {
      await navigator.clipboard.writeText(pre.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(pre);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  }

  box.addEventListener("input", filter);
  verdict.addEventListener("change", filter);
  addEventListener("hashchange", reveal);
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !/^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName)) {
      event.preventDefault();
      box.focus();
    }
  });
  document.addEventListener("click", (event) => {
    if (event.target.matches("button.copy")) copy(event.target);
  });
  filter();
  reveal();
})();

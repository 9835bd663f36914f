"use strict";
(() => {
  const panel = document.getElementById("panel"), picture = document.getElementById("picture");
  const first = panel.textContent;
  let kept = null;
  const said = box => {
    const path = [];
    for (let at = box; at && at !== picture; at = at.parentElement)
      if (at.classList.contains("s"))
        path.unshift([...at.children].filter(it => it.tagName === "B" && it.className !== "l").map(it => it.title || it.textContent).join(" > "));
    return box.title + "\n" + path.join(" > ");
  };
  const show = box => { panel.textContent = box ? said(box) : first; };
  picture.addEventListener("mouseover", event => { if (!kept) show(event.target.closest(".s")); });
  picture.addEventListener("mouseleave", () => { if (!kept) show(null); });
  picture.addEventListener("click", event => {
    const box = event.target.closest(".s");
    if (kept) kept.classList.remove("on");
    kept = box && box !== kept ? box : null;
    if (kept) kept.classList.add("on");
    show(kept);
  });
  const copy = document.getElementById("copy");
  copy.hidden = false;
  copy.addEventListener("click", () => {
    const text = document.getElementById("text");
    if (navigator.clipboard) navigator.clipboard.writeText(text.textContent).then(() => { copy.textContent = "copied"; });
    else getSelection().selectAllChildren(text);
  });
  document.documentElement.dataset.ready = "yes";
})();

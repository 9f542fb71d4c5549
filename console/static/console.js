// Refreshing and copying; every page works without.
"use strict";

const EVERY = 15000; // ms
const PAUSED = "vgpu-paused";
const status = document.getElementById("status");
const pause = document.getElementById("pause");

function remembered() {
  try { return localStorage.getItem(PAUSED) === "yes"; } catch { return false; }
}

function remember(paused) {
  try { localStorage.setItem(PAUSED, paused ? "yes" : "no"); } catch { /* not allowed */ }
}

// What a page in another language brings along; English is written here.
function said(name, english) {
  return status.dataset[name] || english;
}

function rows(root) {
  return root.querySelectorAll("tbody tr").length;
}

async function refresh() {
  const answer = await fetch(location.href, { headers: { accept: "text/html" } });
  if (!answer.ok) {
    const text = said("failed", "Not refreshed: the console answered {status}.");
    status.textContent = text.replace("{status}", answer.status);
    return;
  }
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  const before = rows(document);
  for (const part of document.querySelectorAll("[data-live]")) {
    const next = fresh.getElementById(part.id);
    // What somebody is about to use, or reads with a keyboard, stays as it is.
    if (next && !part.contains(document.activeElement) && next.innerHTML !== part.innerHTML) {
      part.innerHTML = next.innerHTML;
    }
  }
  const asOf = fresh.getElementById("as-of");
  if (asOf) document.getElementById("as-of").innerHTML = asOf.innerHTML;
  const more = rows(document) - before;
  if (more === 1) status.textContent = said("row", "1 new row");
  if (more > 1) status.textContent = said("rows", "{count} new rows").replace("{count}", more);
}

function show(paused) {
  pause.setAttribute("aria-pressed", String(paused));
}

if (pause) {
  let paused = remembered();
  pause.hidden = false;
  show(paused);
  pause.addEventListener("click", () => {
    paused = !paused;
    remember(paused);
    show(paused);
    status.textContent = paused
      ? said("paused", "Paused")
      : said("refreshed", "Refreshed every 15 seconds");
  });
  setInterval(() => {
    if (!paused && !document.hidden) {
      refresh().catch(() => { status.textContent = said("silent", "Not refreshed: the console did not answer."); });
    }
  }, EVERY);
}

if (navigator.clipboard) {
  for (const button of document.querySelectorAll("button[data-copy]")) button.hidden = false;
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-copy]");
  if (!button) return;
  await navigator.clipboard.writeText(button.dataset.copy);
  status.textContent = said("copied", "Copied");
});

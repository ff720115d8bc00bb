// Polls the grader every few seconds, and reloads the page when its content has changed, but never while a person types.
"use strict";
{
  const status = document.getElementById("status"), { version, wait, student } = status.dataset;
  const [grader, bar, changed, problem] = ["grader", "progress", "changed", "problem"].map((name) => document.getElementById(name));
  const address = "/progress" + (student ? "?student=" + encodeURIComponent(student) : "");
  let typed = false;

  async function look() {
    try {
      const now = await (await fetch(address)).json();
      grader.textContent = !now.grader ? now.said || "No grader is running." : now.pieces ? now.done + " of " + now.pieces + " pieces graded" : "A grader starts or ends.";
      bar.hidden = !now.grader;
      if (now.pieces) [bar.max, bar.value] = [now.pieces, now.done];
      else bar.removeAttribute("value");
      problem.textContent = now.problem;
      changed.hidden = now.version === version;
      if (now.version !== version && !typed && performance.now() > 1000 * wait) return location.reload();
    } catch {
      grader.textContent = "The server has ended: start `python -m grader serve` again.";
    }
    setTimeout(look, 1000 * wait);
  }

  addEventListener("input", () => (typed = true));
  changed.onclick = () => { location.reload(); return false; };
  setTimeout(look, 300);
}

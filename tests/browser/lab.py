"""JupyterLab in a headless Chromium, as a student drives it: open a notebook, type into cells, run, look."""

import json
import os
import socket
import subprocess
import time
from contextlib import contextmanager

from environments import environment_of

TOKEN = "student"
CHROMIUM = ("--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu")
SIZE = {"width": 1400, "height": 1000}  # of the page, in pixels
SETTINGS = {  # every cell is drawn, so that all can be looked at; no questions and no news
    "@jupyterlab/notebook-extension/tracker.jupyterlab-settings": {"windowingMode": "none"},
    "@jupyterlab/apputils-extension/notification.jupyterlab-settings": {"fetchNews": "false", "checkForUpdates": False},
}


@contextmanager
def server(course, home):
    """JupyterLab at the folder `course`, with settings, jobs and logs of its own in `home`; yields its address."""
    for name, values in SETTINGS.items():
        path = home / "settings" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values))
    programs = environment_of(course, home / "venv")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "HANDSON_PBS_HOME": str(home / "pbs"),
        "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
    }
    command = [
        programs / "python",
        *"-m jupyterlab --no-browser --allow-root --ServerApp.port=0".split(),
        f"--ServerApp.root_dir={course}",
    ]
    command += [f"--IdentityProvider.token={TOKEN}", "--LabApp.expose_app_in_browser=True"]
    with (
        open(home / "server.log", "w") as log,
        subprocess.Popen(command, env=environment, cwd=course, stdout=log, stderr=log) as process,
    ):
        try:
            yield _address(process, home)
        finally:
            process.terminate()


def _address(process, home):
    """It names its port before it listens there."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        for path in (home / "runtime").glob("jpserver-*.json"):
            try:
                found = json.loads(path.read_text())
                socket.create_connection(("localhost", found["port"]), timeout=1).close()
                return found["url"]
            except (json.JSONDecodeError, OSError):
                pass  # being written, or not listening yet
        time.sleep(0.05)
    raise AssertionError(f"JupyterLab did not start: {(home / 'server.log').read_text()}")


class Notebook:
    """A notebook that is open on a `page` of the browser, as the only one."""

    def __init__(self, page, address, path):
        self.page = page
        if not page.url.startswith(address):
            page.goto(f"{address}lab?token={TOKEN}&reset")
        else:  # to load JupyterLab takes ten times as much of the processor as to open another notebook in it
            page.evaluate(
                "document.body.style.display = ''; for (const one of [...window.jupyterapp.shell.widgets('main')])"
                " one.dispose()"
            )
        page.wait_for_function("window.jupyterapp?.commands.hasCommand('docmanager:open')", timeout=60_000)
        page.evaluate(
            "path => window.jupyterapp.restored.then(() => window.jupyterapp.commands.execute('docmanager:open',"
            " {path}))",
            path,
        )
        ready = """path => { const shown = window.jupyterapp.shell.currentWidget;
            return shown?.context?.path == path && shown.context.isReady && shown.sessionContext.isReady
                && /\\| Idle/.test(document.querySelector('#jp-main-statusbar').innerText) }"""
        page.wait_for_function(ready, arg=path, timeout=60_000)

    def cells(self):
        """Sources, kinds, outputs and whether run, from the notebook as JupyterLab has it."""
        return self.page.evaluate("window.jupyterapp.shell.currentWidget.content.model.toJSON().cells")

    def type(self, number, text):
        """Click into a cell and type `text` in place of what is there."""
        editor = (
            self.page.locator(".jp-Notebook > .jp-WindowedPanel-outer .jp-Cell")
            .nth(number)
            .locator(".jp-InputArea-editor .cm-content")
        )
        editor.scroll_into_view_if_needed()
        editor.click()
        self.page.keyboard.press("Control+A")
        self.page.keyboard.insert_text(text)

    def save(self):
        """Save it, as Ctrl-S does: its file is what is checked."""
        self.page.evaluate("window.jupyterapp.shell.currentWidget.context.save()")

    def run_cell(self):
        """Run the cell that was typed into last."""
        self.page.keyboard.press("Control+Enter")

    def run_all(self):
        """Run all cells. Nothing is drawn meanwhile, until `draw`: it takes as much of the processor as a training."""
        self.page.get_by_role("menuitem", name="Run", exact=True).click()
        self.page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        self.page.evaluate("document.body.style.display = 'none'")

    def wait(self, seconds):
        """Until every code cell has run, or one has failed."""
        ended = """() => { const code = [...window.jupyterapp.shell.currentWidget.content.model.cells]
            .filter(cell => cell.type == 'code' && cell.sharedModel.source.length);
            const failed = cell => [...Array(cell.outputs.length).keys()].some(number => cell.outputs.get(number).type == 'error');
            return code.every(cell => cell.executionCount) && /\\| Idle/.test(document.querySelector('#jp-main-statusbar').textContent)
                || code.some(failed) }"""
        self.page.wait_for_function(ended, timeout=seconds * 1000, polling=500)

    def end_kernel(self):
        """Shut its kernel down: it and what it keeps ready for checks take half a gigabyte."""
        self.page.evaluate("window.jupyterapp.shell.currentWidget.sessionContext.shutdown()")

    def draw(self):
        """Draw it again. JupyterLab gives its parts their sizes when it hears of a new one."""
        self.page.evaluate("document.body.style.display = ''; window.dispatchEvent(new Event('resize'))")
        self.page.wait_for_function("document.querySelector('.jp-Notebook').clientWidth > 0", timeout=60_000)

    def picture(self, path):
        """Keep a picture of the whole notebook."""
        height = self.page.evaluate("document.querySelector('.jp-WindowedPanel-outer').scrollHeight")
        self.page.set_viewport_size(SIZE | {"height": min(height + 200, 15_000)})
        self.page.evaluate("document.querySelector('.jp-WindowedPanel-outer').scrollTop = 0")
        path.parent.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=path)
        self.page.set_viewport_size(SIZE)

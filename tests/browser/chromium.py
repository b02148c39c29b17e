"""A small WebDriver client: as much of the W3C protocol as the tests of the page need."""

from __future__ import annotations

import base64
import shutil
import subprocess
import tempfile
from typing import Any

import httpx

_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the protocol's fixed key of an element id
_FLAGS = (
    "--headless=new",
    "--no-sandbox",  # Chromium refuses its sandbox to root, which is who runs in a container
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)
_CODES = {"Tab": 9}
ENTER, SHIFT, ESCAPE = "\ue007", "\ue008", "\ue00c"

# Looks in the page until EXPRESSION is true, and gives its value. It is pasted in, as the policy of
# the page forbids eval. What it reads may not be there yet: that too is "not yet".
_WAIT = """
const [limit, done] = arguments;
const start = Date.now();
const look = () => {
  let value = null;
  try { value = EXPRESSION; } catch (error) { value = null; }
  if (value) done({ value });
  else if (Date.now() - start > limit) done({ late: document.body.innerText });
  else setTimeout(look, 15);
};
look();
"""


class Chromium:
    """One headless browser with one tab, and the chromedriver that leads it."""

    def __init__(self) -> None:
        self._profile = tempfile.mkdtemp(prefix="draftmark-chromium-")
        self._driver = subprocess.Popen(
            ["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        try:
            self._http = httpx.Client(base_url=self._driver_url(), timeout=300, trust_env=False)
            self._session = f"/session/{self._new_session()}"
        except BaseException:
            self._end_driver()
            raise

    def close(self) -> None:
        self._http.delete(self._session)
        self._http.close()
        self._end_driver()

    def open(self, url: str) -> None:
        self._call("POST", "/url", url=url)

    def js(self, script: str, *args: Any) -> Any:
        """The value of a script that ends in `return`."""
        return self._call("POST", "/execute/sync", script=script, args=list(args))

    def wait(self, expression: str, *, limit_s: float = 8.0) -> Any:
        """Wait in the page until a JavaScript expression is true; fails with the page's text."""
        script = _WAIT.replace("EXPRESSION", f"({expression})")
        answer = self._call("POST", "/execute/async", script=script, args=[limit_s * 1000])
        assert "late" not in answer, f"never true: {expression}\npage:\n{answer.get('late')}"
        return answer["value"]

    def text(self, css: str) -> str:
        return self.js("return document.querySelector(arguments[0]).innerText", css)

    def click(self, css: str) -> None:
        self._call("POST", f"/element/{self._find(css)}/click")

    def type(self, css: str, text: str) -> None:
        """Type into an element, as keys. SHIFT holds until the end of this call."""
        self._call("POST", f"/element/{self._find(css)}/value", text=text)

    def press(self, key: str) -> None:
        """One key, to whatever has the focus."""
        for kind in ("rawKeyDown", "keyUp"):
            self.cdp(
                "Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=_CODES[key]
            )

    def clear(self, css: str) -> None:
        self._call("POST", f"/element/{self._find(css)}/clear")

    def cdp(self, command: str, **params: Any) -> Any:
        """A command of the DevTools protocol."""
        return self._call("POST", "/goog/cdp/execute", cmd=command, params=params)

    def resize(self, width: int, height: int = 800) -> None:
        self.cdp(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def prefer(self, scheme: str) -> None:
        """Prefer `light` or `dark` colours."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.cdp("Emulation.setEmulatedMedia", features=[feature])

    def problems(self) -> list[str]:
        """Warnings and errors on the console since the last call."""
        entries = self._call("POST", "/se/log", type="browser")
        return [row["message"] for row in entries if row["level"] in ("WARNING", "SEVERE")]

    def screenshot(self) -> bytes:
        return base64.b64decode(self._call("GET", "/screenshot"))

    def _find(self, css: str) -> str:
        found = self._call("POST", "/element", using="css selector", value=css)
        return str(found[_ELEMENT])

    def _call(self, method: str, path: str, **body: Any) -> Any:
        reply = self._http.request(
            method, self._session + path, json=body if method == "POST" else None
        )
        value = reply.json()["value"]
        assert reply.is_success, f"{path}: {value}"
        return value

    def _driver_url(self) -> str:
        """Read the port that chromedriver took from what it prints."""
        assert self._driver.stdout is not None
        for line in self._driver.stdout:
            if b"started successfully on port" in line:
                return f"http://127.0.0.1:{int(line.split()[-1].rstrip(b'.'))}"
        raise AssertionError("chromedriver ended without saying its port")

    def _new_session(self) -> str:
        wanted = {
            "browserName": "chrome",
            "timeouts": {"script": 240_000},
            "goog:chromeOptions": {
                "binary": shutil.which("chromium"),
                "args": [*_FLAGS, f"--user-data-dir={self._profile}"],
            },
            "goog:loggingPrefs": {"browser": "ALL"},
        }
        reply = self._http.post("/session", json={"capabilities": {"alwaysMatch": wanted}})
        assert reply.is_success, reply.text
        return str(reply.json()["value"]["sessionId"])

    def _end_driver(self) -> None:
        self._driver.terminate()
        self._driver.wait(timeout=10)
        assert self._driver.stdout is not None
        self._driver.stdout.close()
        shutil.rmtree(self._profile, ignore_errors=True)

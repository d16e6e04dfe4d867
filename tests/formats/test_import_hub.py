"""A model by its name at the hub, from a server on this machine: its safetensors and tokenizer are fetched, its pickles and
code are not."""

from __future__ import annotations

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from glassformer.errors import UserError
from glassformer.formats.import_run import read_source
from tests.external_models import gpt2

NAME, COMMIT = "somebody/small-gpt2", "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.slow
def test_a_name_at_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpt2(tmp_path / "there")
    (tmp_path / "there" / "pytorch_model.bin").write_bytes(b"a pickle")
    (tmp_path / "there" / "modeling.py").write_text("raise SystemExit")
    files = {path.name: path.read_bytes() for path in (tmp_path / "there").iterdir()}
    asked: list[str] = []

    class Hub(BaseHTTPRequestHandler):
        def answer(self, body: bool) -> None:
            asked.append(self.path)
            name = self.path.rpartition("/")[2]
            if self.path.startswith(f"/api/models/{NAME}/tree/"):
                entries = [{"type": "file", "path": n, "size": len(files[n]), "oid": "0" * 40} for n in files]
                content, kind = json.dumps(entries).encode(), "application/json"
            elif self.path.startswith(f"/api/models/{NAME}"):
                facts = {"id": NAME, "modelId": NAME, "sha": COMMIT, "siblings": [{"rfilename": n} for n in files]}
                content, kind = json.dumps(facts).encode(), "application/json"
            elif self.path.startswith(f"/{NAME}/resolve/") and name in files:
                content, kind = files[name], "application/octet-stream"
            else:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.end_headers()
            if body:
                self.wfile.write(content)

        def do_GET(self) -> None:
            self.answer(True)

        def do_HEAD(self) -> None:
            self.answer(False)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        import huggingface_hub.constants as constants

        address = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setattr(constants, "ENDPOINT", address)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", address + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        found = read_source(NAME)
        assert found.model_type == "gpt2" and found.recipe.name == "small-gpt2"
        assert not [path for path in asked if path.endswith((".bin", ".py"))]
        with pytest.raises(UserError, match="no model of that name"):
            read_source("somebody/else")
    finally:
        server.shutdown()
        server.server_close()

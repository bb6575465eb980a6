"""A small server with the part of the Kubernetes API that Spark uses; pods are processes.

A pod that Spark creates runs the entry point of the image with the arguments and variables of the
pod, on this machine. Nothing else of Kubernetes is imitated.
"""

from __future__ import annotations

import json
import re
import subprocess
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

Document = dict[str, Any]
Start = Callable[[list[str], Mapping[str, str]], "subprocess.Popen[bytes]"]
_PATH = re.compile(r"/api/v1/namespaces/(?P<space>[^/]+)/(?P<kind>[^/]+)(?:/(?P<name>[^/]+))?")
_TIME = "2026-01-01T00:00:00Z"


class PodServer:
    """The objects of one namespace. `start` runs a pod: its arguments and its variables."""

    def __init__(self, driver_pod: str, start: Start) -> None:
        self._start = start
        self._lock = threading.Lock()
        self._objects: dict[tuple[str, str], Document] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        #: The pods that Spark has created, in order.
        self.created: list[Document] = []
        self._add("pods", {"kind": "Pod", "metadata": {"name": driver_pod}, "spec": {}}, "Running")
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        for name in list(self._processes):
            self._stop(name)

    def running_processes(self) -> list[subprocess.Popen[bytes]]:
        with self._lock:
            return [each for each in self._processes.values() if each.poll() is None]

    def create(self, kind: str, document: Document) -> Document:
        if kind != "pods":
            return self._add(kind, document, "")
        self.created.append(document)
        (container,) = document["spec"]["containers"]
        fields = {"metadata.name": document["metadata"]["name"], "status.podIP": "127.0.0.1"}
        variables = {
            each["name"]: fields[each["valueFrom"]["fieldRef"]["fieldPath"]]
            if "valueFrom" in each else each.get("value", "")
            for each in container["env"]
        }
        process = self._start(container["args"], variables)
        with self._lock:
            self._processes[document["metadata"]["name"]] = process
        return self._add(kind, document, "Running")

    def find(self, kind: str, name: str | None) -> Document | None:
        with self._lock:
            self._end_pods()
            if name is not None:
                return self._objects.get((kind, name))
            found = [each for (of, _), each in self._objects.items() if of == kind]
        return {
            "kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"},
            "items": [each for each in found if each["metadata"].get("labels")],
        }

    def delete(self, kind: str, name: str | None) -> Document:
        with self._lock:
            names = [
                each for of, each in self._objects
                if of == kind and (name == each or (
                    name is None and self._objects[of, each]["metadata"].get("labels")
                ))
            ]
            for each in names:
                del self._objects[kind, each]
        for each in names:
            self._stop(each)
        return {"kind": "Status", "apiVersion": "v1", "status": "Success"}

    def _add(self, kind: str, document: Document, phase: str) -> Document:
        metadata = document["metadata"]
        metadata |= {"uid": f"uid-{metadata['name']}", "resourceVersion": "1",
                     "namespace": "orders", "creationTimestamp": _TIME}
        document["apiVersion"] = "v1"
        if phase:
            document["status"] = {
                "phase": phase, "podIP": "127.0.0.1",
                "conditions": [{"type": "Ready", "status": "True"}],
            }
        with self._lock:
            self._objects[kind, metadata["name"]] = document
        return document

    def _end_pods(self) -> None:
        for name, process in self._processes.items():
            pod = self._objects.get(("pods", name))
            if pod is not None and process.poll() is not None:
                pod["status"]["phase"] = "Failed" if process.returncode else "Succeeded"

    def _stop(self, name: str) -> None:
        process = self._processes.get(name)
        if process is not None:
            process.kill()
            process.wait()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_request(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length) or b"{}") if length else {}
                path = _PATH.fullmatch(urlsplit(self.path).path)
                document: Document | None = None
                if path is not None and self.command == "POST":
                    document = server.create(path["kind"], body)
                elif path is not None and self.command == "DELETE":
                    document = server.delete(path["kind"], path["name"])
                elif path is not None:
                    document = server.find(path["kind"], path["name"])
                code = 404 if document is None else 201 if self.command == "POST" else 200
                data = json.dumps(document or {"kind": "Status", "code": 404}).encode()
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_DELETE = do_PATCH = do_PUT = handle_request  # noqa: N815

            def log_message(self, format: str, *arguments: object) -> None:
                """Write nothing."""

        return Handler

"""A web server on this machine that answers what a test has set."""

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def serving():
    """Serve while the block runs.

    Yields
    ------
    address : str
    pages : dict
        Answers by path, to be filled: a page (bytes), a status (int), a part of a page with the
        length that is stated (bytes, int), or a list of them, given in turn, the last one for good.
    requests : list of str
        The requested paths.
    """
    pages = {}
    requests = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            requests.append(self.path)
            answer = pages.get(self.path, 404)
            if isinstance(answer, list):
                answer = answer.pop(0) if len(answer) > 1 else answer[0]
            status, body, length = 200, b"", None
            if isinstance(answer, int):
                status = answer
            elif isinstance(answer, tuple):
                body, length = answer
            else:
                body = answer
            self.send_response(status)
            self.send_header("Content-Length", str(length or len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            """Keep the test output clean."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        # A download that is refused breaks the connection.
        server.handle_error = lambda *_: None
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", pages, requests
        server.shutdown()
        thread.join()


def closed_address():
    """Return an address at which nothing answers."""
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        port = server.server_port
    return f"http://127.0.0.1:{port}"

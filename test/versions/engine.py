"""One version of ClickHouse's engine out of its Python wheel, behind the part of ClickHouse's HTTP interface that @clickhouse/client uses: LIBRARY FOLDER.
One statement at a time. Prints its port. Ends when its stdin is closed."""
import importlib.util
import itertools
import os
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.machinery import ExtensionFileLoader
from socketserver import ThreadingMixIn
from urllib.parse import parse_qsl, urlsplit

library, folder = sys.argv[1:]
# the engine's log goes to stdout; answers of ours go to the port and nowhere else
said = os.fdopen(os.dup(1), 'w')
os.dup2(2, 1)
spec = importlib.util.spec_from_file_location('_chdb', library, loader=ExtensionFileLoader('_chdb', library))
chdb = importlib.util.module_from_spec(spec)
spec.loader.exec_module(chdb)
connection = chdb.connect(os.path.join(folder, 'db'))
bodies = itertools.count()
turn = threading.Lock()
# names in an address that are not settings; a session that was once read-only cannot be made otherwise
OTHER = {'query', 'query_id', 'database', 'default_format', 'wait_end_of_query', 'session_id', 'role', 'readonly', 'cancel_http_readonly_queries_on_client_close'}


def quote(text):
    return "'" + text.replace('\\', '\\\\').replace("'", "\\'") + "'"


def run(sql, output='TabSeparated'):
    return bytes(connection.query(sql, output).bytes())


run('CREATE DATABASE IF NOT EXISTS sluice ENGINE = Atomic')
run('USE sluice')
known = set(run('SELECT name FROM system.settings').decode().split())


def execute(address, body):
    global connection
    query = dict(parse_qsl(urlsplit(address).query, keep_blank_values=True))
    sql = query.get('query')
    path = None
    if sql is None:
        sql = body.decode()
    else:
        path = os.path.join(folder, f'{next(bodies)}.body')
        with open(path, 'wb') as file:
            file.write(body)
        sql = re.sub(r'\s*FORMAT (RowBinary|Native)\s*$', lambda found: f' FROM INFILE {quote(path)} FORMAT {found[1]}', sql)
    settings = {name: value for name, value in query.items() if name not in OTHER and not name.startswith('param_')}
    unknown = [name for name in settings if name not in known]
    if unknown:
        raise RuntimeError(f'Code: 115. DB::Exception: Unknown setting {unknown[0]}. (UNKNOWN_SETTING)')
    try:
        changes = [f'{name} = {quote(value)}' for name, value in query.items() if name.startswith('param_') or name in settings]
        if changes:
            run(f"SET {', '.join(changes)}")
        return run(sql, query.get('default_format', 'TabSeparated'))
    except Exception:
        # rows of a statement that failed stay in its connection
        connection.close()
        connection = chdb.connect(os.path.join(folder, 'db'))
        run('USE sluice')
        settings = {}
        raise
    finally:
        if settings:
            run(f"SET {', '.join(f'{name} = DEFAULT' for name in settings)}")
        if path is not None:
            os.remove(path)


class Handler(BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def do_POST(self):
        encoding = self.headers.get('transfer-encoding')
        body = self.chunks() if encoding == 'chunked' else self.rfile.read(int(self.headers.get('content-length', 0)))
        try:
            with turn:
                answer = execute(self.path, body)
            self.answer(200, answer)
        except Exception as error:
            found = re.search(r'Code: (\d+)', str(error))
            self.answer(500, str(error).encode(), found[1] if found else '1002')

    do_GET = do_POST

    def chunks(self):
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b''.join(parts)

    def answer(self, status, body, code=None):
        self.send_response(status)
        self.send_header('content-length', str(len(body)))
        self.send_header('x-clickhouse-query-id', 'engine')
        if code is not None:
            self.send_header('x-clickhouse-exception-code', code)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(ThreadingMixIn, HTTPServer):
    daemon_threads = True


server = Server(('127.0.0.1', 0), Handler)
print(server.server_port, file=said, flush=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
sys.stdin.read()
os._exit(0)

#!/usr/bin/python3
"""prometheus_test.py KITTY: a real Prometheus scrapes a real kitty that watches a real process with real traffic.

Passes (exit 0) once Prometheus says that the target is up and holds net_tcp_out_segs_total of the watched process and
kitty_build_info. Exit 1: not within a minute, and what was seen instead. Exit 77: prometheus is not installed.
Needs root, or what kitty needs to read another process's environment. Everything is on loopback.
"""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
from lab import free_port  # noqa: E402

PATIENCE_S = 60
STOP_S = 5

# A watched process: ping-pong over loopback TCP, one byte each way, until its stdin closes.
TRAFFIC = """
import select, socket, sys
listener = socket.create_server(('127.0.0.1', 0))
a = socket.create_connection(listener.getsockname())
b, _ = listener.accept()
for s in (a, b):
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
print('ready', flush=True)
while not select.select([sys.stdin], [], [], 0.01)[0]:
    a.sendall(b'?'); b.recv(1); b.sendall(b'!'); a.recv(1)
"""

CONFIG = """
global:
  scrape_interval: 1s
  scrape_timeout: 1s
scrape_configs:
  - job_name: kitty
    honor_labels: true
    static_configs:
      - targets: ['127.0.0.1:{port}']
"""


def stop(process):
    """SIGTERM, then SIGKILL; the exit status, negative for a signal."""
    if process.stdin:
        process.stdin.close()
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        return process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def get(url):
    # No proxy, whatever the environment says.
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=5) as response:
        return response.read().decode()


def query(port, expression):
    url = f'http://127.0.0.1:{port}/api/v1/query?' + urllib.parse.urlencode({'query': expression})
    return json.loads(get(url))['data']['result']


def tail(path):
    with open(path, errors='replace') as f:
        return ''.join(f.readlines()[-15:])


def main():
    if len(sys.argv) != 2:
        print('usage: prometheus_test.py KITTY', file=sys.stderr)
        return 3
    kitty = os.path.abspath(sys.argv[1])
    if not os.access(kitty, os.X_OK):
        print(f'{kitty}: not an executable', file=sys.stderr)
        return 3
    prometheus = shutil.which('prometheus')
    if prometheus is None:
        print('SKIP: prometheus not found')
        return 77

    with tempfile.TemporaryDirectory(prefix='kitty-prometheus-') as folder:
        running = []
        logs = {}

        def run(name, command, **options):
            logs[name] = os.path.join(folder, name + '.log')
            with open(logs[name], 'w') as log:
                options.setdefault('stdout', log)
                running.append((name, subprocess.Popen(command, stderr=log, **options)))
            return running[-1][1]

        try:
            environment = dict(os.environ, KITTY_WATCH='1', RANK='3', JOB_NAME='prometheus-test')
            watched = run('watched', ['/usr/bin/python3', '-c', TRAFFIC], env=environment, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE)
            if watched.stdout.readline() != b'ready\n':
                print('FAIL: no traffic:\n' + tail(logs['watched']))
                return 1
            environment.pop('KITTY_WATCH')
            kitty_port, prometheus_port = free_port(), free_port()
            agent = run('kitty', [kitty, f'--web.listen-address=127.0.0.1:{kitty_port}'], env=environment)
            config = os.path.join(folder, 'prometheus.yml')
            with open(config, 'w') as f:
                f.write(CONFIG.format(port=kitty_port))
            run('prometheus', [prometheus, f'--config.file={config}', f'--storage.tsdb.path={folder}/data',
                               f'--web.listen-address=127.0.0.1:{prometheus_port}', '--log.level=warn'], env=environment)

            wanted = {
                'up': 'up{job="kitty"} == 1',
                'out segments': f'net_tcp_out_segs_total{{pid="{watched.pid}",rank="3",job="prometheus-test"}} > 0',
                'rate of out segments': f'rate(net_tcp_out_segs_total{{pid="{watched.pid}"}}[10s]) > 0',
                'version': 'kitty_build_info',
                'samples a scrape': 'scrape_samples_scraped{job="kitty"} > 0',
                'seconds a scrape': 'scrape_duration_seconds{job="kitty"}',
            }
            started = time.monotonic()
            missing = dict(wanted)
            problem = ''
            while missing and time.monotonic() - started < PATIENCE_S:
                for name, process in running:
                    if process.poll() is not None:
                        print(f'FAIL: {name} exited with {process.returncode}:\n{tail(logs[name])}')
                        return 1
                try:
                    missing = {name: e for name, e in wanted.items() if not query(prometheus_port, e)}
                    targets = json.loads(get(f'http://127.0.0.1:{prometheus_port}/api/v1/targets'))
                    problem = ' '.join(t['lastError'] for t in targets['data']['activeTargets'])
                except (OSError, ValueError, KeyError, urllib.error.URLError) as error:
                    problem = str(error)
                if missing:
                    time.sleep(0.5)
            if missing:
                print(f'FAIL: after {PATIENCE_S} s Prometheus lacks: ' + ', '.join(missing.values()))
                print(f'last error: {problem}\nkitty said:\n{tail(logs["kitty"])}')
                return 1
            print(f'all there after {time.monotonic() - started:.1f} s')
            for name, expression in wanted.items():
                series = query(prometheus_port, expression)
                if not series:  # one scrape later it is gone again
                    print(f'FAIL: {name} vanished: {expression}')
                    return 1
                labels = {k: v for k, v in series[0]['metric'].items() if k not in ('__name__', 'instance')}
                print(f'{name}: {series[0]["value"][1]} {labels}')
            status = stop(agent)
            print(f'kitty exit status: {status}')
            return 0 if status == 0 else 1
        finally:
            for _, process in reversed(running):
                stop(process)


if __name__ == '__main__':
    sys.exit(main())

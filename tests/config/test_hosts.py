"""roost.toml: what is right is read, what is wrong is named."""

from pathlib import Path

import pytest

from console.config.hosts import load_hosts
from console.config.locations import config_directory
from console.errors import UsageError


def write(text: str) -> Path:
    path = config_directory() / "roost.toml"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return path


def test_no_file_means_no_hosts(embedded_data: Path) -> None:
    assert load_hosts() == {}


def test_a_host_takes_its_name_and_leaves_the_rest_to_openssh(embedded_data: Path) -> None:
    write('[hosts.lab]\naddress = "lab.example"\nuser = "u"\n')
    host = load_hosts()["lab"]
    assert (host.name, host.address, host.user, host.port, host.root) == ("lab", "lab.example", "u", None, "~/.roost")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('[hosts.lab]\naddress = "x"\nadress = "y"\n', "adress"),
        ("[hosts.lab]\nport = 22\n", "address"),
        ('[hosts.lab]\naddress = "x"\nport = 99999\n', "port"),
        ('[hosts.embedded]\naddress = "x"\n', "embedded"),
        ("[hosts.lab\n", "roost.toml"),
        ('[hosts.lab]\naddress = "x"\n[hosts.lab.slurm]\npartition = "a b"\n', "no single word"),
        ('[hosts.lab]\naddress = "x"\n[hosts.lab.slurm]\noptions = ["--a=b\\nrm -r x"]\n', "options"),
        ('[hosts.lab]\naddress = "x"\n[hosts.lab.slurm]\ngpus = 0\n', "gpus"),
    ],
)
def test_a_mistake_names_the_file_and_the_key(embedded_data: Path, text: str, complaint: str) -> None:
    path = write(text)
    with pytest.raises(UsageError) as caught:
        load_hosts()
    assert complaint in caught.value.info.message
    assert str(path) in caught.value.info.message

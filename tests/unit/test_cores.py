"Quotas of containers: groups of version 1 and 2, nested, in a container of its own or as the host names them."
import math
import os

import pytest

import alphazero_nb.core.device as page
from alphazero_nb.core.device import quota_cores, usable_cores

MACHINES = {   # files, cores
    "no groups": ({}, math.inf),
    "version 2, at the top": ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "200000 100000\n"}, 2),
    "version 2, without a quota": ({"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/cpu.max": "max 100000\n"}, math.inf),
    "version 2, nested": ({"proc/self/cgroup": "0::/a/b/c\n", "sys/fs/cgroup/a/b/c/cpu.max": "max 100000\n",
                           "sys/fs/cgroup/a/b/cpu.max": "400000 100000\n", "sys/fs/cgroup/a/cpu.max": "150000 50000\n",
                           "sys/fs/cgroup/other/cpu.max": "1000 100000\n"}, 3),
    "version 2, the path of the host": ({"proc/self/cgroup": "0::/system.slice/docker-1.scope\n",
                                         "sys/fs/cgroup/cpu.max": "250000 100000\n"}, 2.5),
    "version 2, above this namespace": ({"proc/self/cgroup": "0::/../../job\n", "sys/fs/cgroup/cpu.max": "100000 100000\n"}, 1),
    "version 1, in a container": ({"proc/self/cgroup": "4:cpu,cpuacct:/docker/1\n1:name=systemd:/docker/1\n",
                                   "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "200000\n",
                                   "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n"}, 2),
    "version 1, nested": ({"proc/self/cgroup": "5:cpuacct,cpu:/a/b\n0::/\n", "sys/fs/cgroup/cpu/a/b/cpu.cfs_quota_us": "-1\n",
                           "sys/fs/cgroup/cpu/a/b/cpu.cfs_period_us": "100000\n", "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "50000\n",
                           "sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "100000\n"}, .5),
    "version 1, no quota": ({"proc/self/cgroup": "4:cpu:/\n", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                             "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"}, math.inf),
    "both": ({"proc/self/cgroup": "4:cpu:/a\n0::/b\n", "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "300000\n",
              "sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "100000\n", "sys/fs/cgroup/unified/b/cpu.max": "700000 100000\n"}, 3),
    "files that say nothing": ({"proc/self/cgroup": "x\n\n:::\n", "sys/fs/cgroup/cpu.max": "much\n",
                                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "0\n"}, math.inf),
}


@pytest.mark.parametrize("name", MACHINES)
def test_the_smallest_quota_of_all_groups_counts(name, tmp_path, monkeypatch):
    files, cores = MACHINES[name]
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert quota_cores(tmp_path) == cores
    monkeypatch.setattr(page, "quota_cores", lambda: quota_cores(tmp_path))
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(64)), raising=False)
    assert usable_cores() == (64 if cores == math.inf else math.ceil(cores))

"""Prints the seconds that HyperQueue takes for so many null tasks on eight cores."""

import sys
import time

from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig

with LocalCluster() as cluster:
    cluster.start_worker(WorkerConfig(cores=8))
    client = cluster.client()
    job = Job()
    for _ in range(int(sys.argv[1])):
        job.program(["/bin/true"])
    started = time.monotonic()
    client.wait_for_jobs([client.submit(job)])
    print(time.monotonic() - started)

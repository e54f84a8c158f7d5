"""dask.distributed: a local cluster with one worker process. Only there for what it does about a crash."""

import distributed
import work
from driving import Driver


class Peer(Driver):
    name = "distributed"

    def start(self, number=0):
        self.cluster = distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None)
        self.client = distributed.Client(self.cluster)

    def call(self, function, number=0, **arguments):
        return self.client.submit(work.run, function, arguments, pure=False).result()

    def lost(self, number=0):
        """Leave it to its nanny."""

    def stop(self):
        self.client.close()
        self.cluster.close()

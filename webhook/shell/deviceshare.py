"""Exports promises under the metric names of Volcano's scheduler, where a site asks for them."""

from collections.abc import Iterator, Sequence

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from allocator.core.devicesamples import FAMILIES, SchedulerSample, samples
from allocator.shell.inventory import Inventory


class Deviceshare(Collector):
    """Hands out ``samples``, which are replaced, never edited: scrapes run in a thread."""

    def __init__(self) -> None:
        """Begin with nothing to say."""
        self.samples: Sequence[SchedulerSample] = ()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield each metric that has samples."""
        found = self.samples
        for family in FAMILIES:
            of_it = [sample for sample in found if sample.family is family]
            if of_it:
                metric = GaugeMetricFamily(family.name, family.about, labels=family.labels)
                for sample in of_it:
                    metric.add_metric(sample.labels, sample.value)
                yield metric

    def renew(self, inventory: Inventory) -> None:
        """Take what is promised now, or nothing where the settings do not ask for it."""
        if not inventory.settings.volcano_metrics:
            self.samples = ()
            return
        factor = inventory.device_config.memory_factor
        sites = inventory.index().sites.values()
        self.samples = [
            sample
            for site in sites
            for sample in samples(site.node, site.entries.values(), factor=factor)
        ]

"""Ray clusters: whole pipelines as actors sharing one frame stream."""

from pipeline.cluster.cluster_pipeline import ClusterPipeline
from pipeline.cluster.fleet import ReplicaStatistics
from pipeline.cluster.loader import load

__all__ = ["ClusterPipeline", "ReplicaStatistics", "load"]

"""Clusters of Ray: whole pipelines as actors on its nodes, which share one stream of frames."""

from pipeline.cluster.cluster_pipeline import ClusterPipeline
from pipeline.cluster.fleet import ReplicaStatistics
from pipeline.cluster.loader import load

__all__ = ["ClusterPipeline", "ReplicaStatistics", "load"]

"""Hyperparameters and metrics of a run, as the protobufs of tensorboard's plugin for them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from google.protobuf import struct_pb2
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2

from engine.tensor import Tensor
from engine.utils.tensorboard._convert_np import make_np

__all__ = ["hparams"]


def _kind(name: str, value: Any) -> Any:
    """The type of a hyperparameter.  ValueError for what is neither a number, a flag, a text nor a tensor."""
    if isinstance(value, bool):
        return api_pb2.DATA_TYPE_BOOL
    if isinstance(value, str):
        return api_pb2.DATA_TYPE_STRING
    if isinstance(value, int | float | Tensor):
        return api_pb2.DATA_TYPE_FLOAT64
    raise ValueError(
        f"value should be one of int, float, str, bool, or torch.Tensor: {name} is a {type(value).__name__}"
    )


def _value(value: Any) -> Any:
    if isinstance(value, bool):
        return struct_pb2.Value(bool_value=value)
    if isinstance(value, str):
        return struct_pb2.Value(string_value=value)
    return struct_pb2.Value(number_value=float(make_np(value).reshape(())))


def _summary(tag: str, **content: Any) -> Any:
    data = plugin_data_pb2.HParamsPluginData(version=metadata.PLUGIN_DATA_VERSION, **content)
    about = metadata.create_summary_metadata(data)
    return Summary(value=[Summary.Value(tag=tag, metadata=about, tensor=metadata.NULL_TENSOR)])


def hparams(
    hparam_dict: Mapping[str, Any] | None = None,
    metric_dict: Mapping[str, Any] | None = None,
    hparam_domain_discrete: Mapping[str, list[Any]] | None = None,
) -> tuple[Any, Any, Any]:
    """The experiment, the start and the end of a run.  TypeError for what is no dict, ValueError for other values."""
    for name, given in (("hparam_dict", hparam_dict), ("metric_dict", metric_dict)):
        if not isinstance(given, Mapping):
            raise TypeError(f"{name} should be a dictionary, nothing logged.")
    assert hparam_dict is not None and metric_dict is not None
    domains = dict(hparam_domain_discrete or {})
    for name in domains:
        if name not in hparam_dict or any(not isinstance(v, type(hparam_dict[name])) for v in domains[name]):
            raise TypeError(
                f"parameter: hparam_domain_discrete[{name}] should be a list of same type as hparam_dict[{name}]."
            )
    infos = []
    start = plugin_data_pb2.SessionStartInfo(start_time_secs=time.time())
    for name, value in hparam_dict.items():
        if value is None:
            continue
        kind = _kind(name, value)
        info = api_pb2.HParamInfo(name=name, type=kind)
        for other in domains.get(name, ()):
            info.domain_discrete.values.add().CopyFrom(_value(other))
        infos.append(info)
        start.hparams[name].CopyFrom(_value(value))
    metrics = [api_pb2.MetricInfo(name=api_pb2.MetricName(tag=name)) for name in metric_dict]
    experiment = api_pb2.Experiment(hparam_infos=infos, metric_infos=metrics)
    end = plugin_data_pb2.SessionEndInfo(status=api_pb2.STATUS_SUCCESS, end_time_secs=time.time())
    return (
        _summary(metadata.EXPERIMENT_TAG, experiment=experiment),
        _summary(metadata.SESSION_START_INFO_TAG, session_start_info=start),
        _summary(metadata.SESSION_END_INFO_TAG, session_end_info=end),
    )

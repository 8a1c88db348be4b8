"""Facts about this machine."""


def gpus():
    return []

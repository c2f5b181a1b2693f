from __future__ import annotations

from tests.servers import moto_s3, rclone_s3, seaweedfs

__all__ = ["moto_s3", "rclone_s3", "seaweedfs"]

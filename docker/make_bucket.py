"""Make the bucket of a zone in its object store: make_bucket.py ENDPOINT BUCKET.

The keys are those of the environment. A bucket that is there already is left as it is.
"""

from __future__ import annotations

import sys

import boto3
from botocore.exceptions import ClientError


def main(endpoint: str, bucket: str) -> None:
    store = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
    try:
        store.head_bucket(Bucket=bucket)
    except ClientError as error:
        if error.response["ResponseMetadata"]["HTTPStatusCode"] != 404:
            raise
        store.create_bucket(Bucket=bucket)


if __name__ == "__main__":
    main(*sys.argv[1:])

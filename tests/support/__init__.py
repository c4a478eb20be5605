"""What the tests share: processes they start, worlds they build, fixtures of several folders."""

"""The server: the pushed log in Postgres, raw in S3, the API and the web panel. Nothing of it is built yet."""

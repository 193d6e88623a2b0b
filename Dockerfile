# One image for the three services and the commands, against a ClickHouse server: docker-compose.yml says which of them a container runs.
# Not for `npm start`: the embedded ClickHouse (543 MB) is not in it. `npm run test:image` builds it and runs the services from it.
FROM node:24.21.0-bookworm-slim AS packages
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
# --omit=optional would also leave out the native parts of lz4, snappy and crc32, without which no record can be read; the package `node` is the image's own here
RUN npm ci --omit=dev --ignore-scripts && rm -rf node_modules/chdb node_modules/@chdb node_modules/node

FROM node:24.21.0-bookworm-slim
# MALLOC_MMAP_THRESHOLD_: as in `npm run ingest`, memory of batches returns to the system
ENV NODE_ENV=production \
    MALLOC_MMAP_THRESHOLD_=1048576 \
    HOST=0.0.0.0 \
    METRICS_PORT=9100 \
    DATA_DIR=/data
WORKDIR /app
COPY --from=packages /app/node_modules node_modules
COPY package.json LICENSE cli.ts ./
COPY clickhouse clickhouse
COPY schemas schemas
COPY common common
COPY services services
# the console shows an alert's section
COPY docs/runbook.md docs/runbook.md
# Only query writes, and only here: its first key, where API_KEY is not set. Mount a volume to keep that key.
# No VOLUME: Docker would make an anonymous volume for every container, those of rollup and ingest included.
RUN mkdir /data && chown node:node /data
USER node
EXPOSE 4000 9100
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["node", "-e", "fetch('http://127.0.0.1:' + process.env.METRICS_PORT + '/livez').then((r) => process.exit(r.ok ? 0 : 1), () => process.exit(1))"]
ENTRYPOINT ["node"]
CMD ["services/query/main.ts"]

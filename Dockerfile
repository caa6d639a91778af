# docker build -t trestle .
# docker run --init --stop-timeout 35 -p 127.0.0.1:8787:8787 -v trestle:/data \
#   -e BRIDGE_AUTH_TOKEN=... -e COMPLETIONS_MASTER_KEY=... trestle
#
# Inside a container the address is 0.0.0.0, which is not loopback: without tokens the program refuses to start.
# --init gives the container a first process that collects the children of agents; --stop-timeout lets work finish.

FROM node:24-slim AS build
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
# The image is the runtime here: the pinned one and the other install scripts are for checkouts.
RUN npm ci --ignore-scripts
COPY tsconfig.json ./
COPY scripts ./scripts
COPY src ./src
RUN npm run build

FROM node:24-slim AS dependencies
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
RUN npm ci --omit=dev --ignore-scripts

FROM node:24-slim
ARG COMMIT=""
ARG BUILD_DATE=""
ARG IMAGE=""
ARG TAG=""
ENV NODE_ENV=production \
    TRESTLE_LISTEN=0.0.0.0:8787 \
    TRESTLE_DATA_DIR=/data \
    TRESTLE_BUILD_COMMIT=$COMMIT \
    TRESTLE_BUILD_DATE=$BUILD_DATE \
    TRESTLE_BUILD_IMAGE=$IMAGE \
    TRESTLE_BUILD_TAG=$TAG
WORKDIR /app
COPY --from=dependencies /app/node_modules ./node_modules
COPY --from=build /app/dist ./dist
COPY package.json LICENSE ./
RUN mkdir /data && chown node:node /data && chmod 0700 /data
USER node
VOLUME /data
EXPOSE 8787
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s --retries=3 \
  CMD ["node", "-e", "fetch('http://127.0.0.1:8787/healthz').then((r) => process.exit(r.ok ? 0 : 1), () => process.exit(1))"]
ENTRYPOINT ["node", "--max-semi-space-size=16", "--expose-gc", "/app/dist/trestle.cjs"]
CMD ["serve"]

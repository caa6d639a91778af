import type * as http from 'node:http';

/**
 * `node:http` as `require` gives it. To import it by name makes Node read all its exports, among them the getters that
 * load its own fetch and WebSocket: 2 MiB and some milliseconds of every start, for nothing.
 */
export const nodeHttp: typeof http = process.getBuiltinModule('node:http');

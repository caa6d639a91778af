/** What apps import from `trestle/client`: all of it, and nothing else of the program. */
export type { AgentSession, FollowOptions, SessionDefaults, TurnOptions } from './agent-session.ts';
export type { CallOptions } from './call-limits.ts';
export type { ResolveParams, TransportName, TrestleClient, TrestleClientOptions } from './create-trestle-client.ts';
export { createTrestleClient } from './create-trestle-client.ts';
export type { Turn } from './create-turn.ts';
export type { Gateway, Tools } from './gateway.ts';
export type { JobList, JobRecord, Jobs, UnknownJob } from './jobs.ts';
export type { OpenSocket } from './open-link.ts';
export type { SessionUpdate, StructuredEvent } from './session-update.ts';
export type { WebSocketLike } from './socket-link.ts';
export type { ClientErrorCode } from './trestle-error.ts';
export { TrestleError } from './trestle-error.ts';

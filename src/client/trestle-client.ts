/** What apps import from `trestle/client`: all of it, and nothing else of the program. */
export type {
  AgentSession,
  EndOptions,
  FollowOptions,
  SessionDefaults,
  SessionUpdate,
  StructuredEvent,
  Turn,
  TurnOptions,
} from './agent-session.ts';
export type { CallOptions } from './bridge-transport.ts';
export type {
  Gateway,
  JobDetails,
  JobList,
  JobRecord,
  Jobs,
  ResolveParams,
  Tools,
  TransportName,
  TrestleClient,
  TrestleClientOptions,
  UnknownJob,
} from './create-trestle-client.ts';
export { createTrestleClient } from './create-trestle-client.ts';
export type { Live, LiveChange, LiveFollowOptions, LiveStatus, LiveTopic, LiveUpdate } from './live-client.ts';
export type { Schedules } from './schedules-client.ts';
export type { Agents, Attachments, Permissions, Sessions } from './sessions-client.ts';
export type { OpenSocket, WebSocketLike } from './socket-link.ts';
export type { ClientErrorCode } from './trestle-error.ts';
export { TrestleError } from './trestle-error.ts';

import { type Static, Type } from 'typebox';

/** The shapes of spec/bridge 2.1: what the bridge can do, and which agents and gateways stand behind it. */
export const AgentCategory = Type.Union([Type.Literal('native'), Type.Literal('protocol-adapter')]);

export const ProviderEntry = Type.Object({
  providerId: Type.String({ description: 'Opaque id; apps read it here and never hard-wire it.' }),
  label: Type.String(),
  targets: Type.Array(Type.Literal('agent')),
  category: AgentCategory,
  enabled: Type.Boolean({ description: 'Whether it can be used right now.' }),
  unavailableReason: Type.String({ description: 'Empty while it can be used.' }),
  version: Type.String({ description: 'Empty while unknown.' }),
});

export const GatewayProviderEntry = Type.Object({
  providerId: Type.String(),
  label: Type.String(),
  targets: Type.Array(Type.Literal('gateway')),
  enabled: Type.Boolean(),
  unavailableReason: Type.String(),
  version: Type.String(),
});

export const ProbeEntry = Type.Object({
  providerId: Type.String(),
  available: Type.Boolean(),
  status: Type.String({ description: '`ok`, `not_installed`, `not_configured` or `failed: <short>`.' }),
});

export const Capabilities = Type.Object({
  singleAgent: Type.Boolean({ description: 'Single-agent sessions are served.' }),
  multiAgent: Type.Boolean({ description: 'Multi-agent runs are served.' }),
  availableExecutionTargets: Type.Array(Type.Union([Type.Literal('agent'), Type.Literal('gateway')])),
  providerCatalog: Type.Array(ProviderEntry),
  gatewayProviders: Type.Array(GatewayProviderEntry),
  providerProbeSummary: Type.Array(ProbeEntry),
});

export type AgentCategory = Static<typeof AgentCategory>;
export type Capabilities = Static<typeof Capabilities>;

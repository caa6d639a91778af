import type { ProxyNode } from '../contract/proxy-node.ts';

/** Where a node can be reached; what is missing or empty has a default (contract/accounts, Rules: Proxy nodes). */
export interface NodeAddress {
  readonly address?: string | undefined;
  readonly port?: number | undefined;
  readonly server_name?: string | undefined;
  readonly path?: string | undefined;
  readonly mode?: string | undefined;
  readonly xhttp_port?: number | undefined;
  readonly tcp_port?: number | undefined;
}

export const FLOW = 'xtls-rprx-vision';

/** A node as the user with this proxy UUID connects to it. */
export function describeNode(
  agent: { readonly id: string; readonly name: string; readonly node: NodeAddress },
  proxyUuid: string,
): ProxyNode {
  const { node } = agent;
  const plain = {
    name: agent.name,
    address: node.address || agent.id,
    port: node.port ?? 443,
    users: [proxyUuid],
    transport: 'xhttp',
    path: node.path || '/split',
    mode: node.mode || 'auto',
    security: 'tls',
    flow: FLOW,
    server_name: node.server_name || agent.id,
    xhttp_port: node.xhttp_port ?? 443,
    tcp_port: node.tcp_port ?? 1443,
  };
  const { server_name: sni, path, mode } = plain;
  return {
    ...plain,
    uri_scheme_xhttp: vlessUri(plain, proxyUuid, plain.xhttp_port, {
      encryption: 'none',
      type: 'xhttp',
      security: 'tls',
      host: sni,
      path,
      mode,
      sni,
      fp: 'chrome',
      alpn: 'h2',
    }),
    uri_scheme_tcp: vlessUri(plain, proxyUuid, plain.tcp_port, {
      encryption: 'none',
      type: 'tcp',
      security: 'tls',
      sni,
      fp: 'chrome',
      flow: FLOW,
    }),
  };
}

function vlessUri(
  { address, name }: { readonly address: string; readonly name: string },
  uuid: string,
  port: number,
  parameters: Readonly<Record<string, string>>,
): string {
  const host = address.includes(':') ? `[${address}]` : address;
  const query = Object.entries(parameters).map(([key, value]) => `${key}=${encodeURIComponent(value)}`);
  return `vless://${uuid}@${host}:${port}?${query.join('&')}#${encodeURIComponent(name)}`;
}

import { lookup } from 'node:dns';
import { isIP, type LookupFunction } from 'node:net';
import { type Clock, withinTime } from '../../platform/clock/clock.ts';
import { ConfigurationError, type Problem } from '../../platform/config/problem.ts';
import type { DistributedSettings } from '../settings.ts';
import { isTunnelAddress, refusalOfAddress } from './endpoint-rule.ts';

const LOOKUP_MS = 2_000;

/**
 * Looks the names of endpoints up when the bridge starts, and refuses those that lead outside (spec/bridge 4.6, rule 5).
 * One that cannot be looked up now is looked at when a connection is made, like all others.
 */
export async function checkEndpointNames(
  nodes: DistributedSettings['nodes'],
  clock: Pick<Clock, 'after'>,
  lookUp: LookupFunction = lookup,
): Promise<void> {
  const found = await Promise.all(
    nodes.map(async ({ id, bridge_endpoint: endpoint }, index): Promise<readonly Problem[]> => {
      const host = new URL(endpoint).hostname;
      if (isIP(host) !== 0 || host.startsWith('[')) return [];
      const addresses = await withinTime(clock, LOOKUP_MS, addressesOf(host, lookUp), () => []);
      const refused = addresses.find((address) => !isTunnelAddress(address));
      if (refused === undefined) return [];
      const wrong = `the name of node "${id}" leads outside: ${refusalOfAddress(refused)}`;
      const right = 'name the end of a tunnel';
      return [{ where: 'configuration', path: `distributed.nodes[${index}].bridge_endpoint`, wrong, right }];
    }),
  );
  const problems = found.flat();
  if (problems.length > 0) throw new ConfigurationError(problems);
}

function addressesOf(host: string, lookUp: LookupFunction): Promise<readonly string[]> {
  return new Promise((resolve) => {
    lookUp(host, { all: true }, (error, found) => {
      if (error !== null) resolve([]);
      else resolve(typeof found === 'string' ? [found] : found.map(({ address }) => address));
    });
  });
}

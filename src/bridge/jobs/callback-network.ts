import { lookup } from 'node:dns/promises';
import { networkInterfaces } from 'node:os';
import { type CallbackRequest, type CallbackWay, sendCallback } from './send-callback.ts';

/** What callbacks need of the network. */
export interface CallbackNetwork {
  /** All addresses of a name. Rejects when it has none. */
  lookUp(name: string): Promise<readonly string[]>;
  ownAddresses(): readonly string[];
  /** Posts once and gives the status of the answer. Rejects when there is none. */
  send(request: CallbackRequest, way: CallbackWay): Promise<number>;
}

export const systemCallbackNetwork: CallbackNetwork = {
  async lookUp(name) {
    return (await lookup(name, { all: true })).map(({ address }) => address);
  },
  ownAddresses: () =>
    Object.values(networkInterfaces()).flatMap((found = []) => found.map(({ address }) => withoutZone(address))),
  send: sendCallback,
};

function withoutZone(address: string): string {
  return address.split('%')[0] ?? address;
}

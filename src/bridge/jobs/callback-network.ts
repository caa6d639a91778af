import { lookup } from 'node:dns/promises';
import { networkInterfaces } from 'node:os';

/** What callbacks need to know of the network. */
export interface CallbackNetwork {
  /** All addresses of a name. Rejects when it has none. */
  lookUp(name: string): Promise<readonly string[]>;
  ownAddresses(): readonly string[];
}

export const systemCallbackNetwork: CallbackNetwork = {
  async lookUp(name) {
    return (await lookup(name, { all: true })).map(({ address }) => address);
  },
  ownAddresses: () =>
    Object.values(networkInterfaces()).flatMap((found = []) => found.map(({ address }) => withoutZone(address))),
};

function withoutZone(address: string): string {
  return address.split('%')[0] ?? address;
}

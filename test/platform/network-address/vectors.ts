import type { AddressClass } from '../../../src/platform/network-address/classify-address.ts';

/** How a host is written, what it means, and what follows from that in the two directions that depend on it. */
export interface AddressVector {
  /** As it stands in a URL or in a setting. */
  readonly host: string;
  readonly class: AddressClass;
  /** Canonical spellings are addresses by themselves; the others only as the host of a URL. */
  readonly canonical: boolean;
  /** May a stranger have us call it? Not without the operator listing it. */
  readonly callback: 'refused' | 'accepted';
  /** May an operator name it as the far end of an encrypted tunnel? */
  readonly tunnel: 'refused' | 'accepted';
}

const TUNNEL_CLASSES: ReadonlySet<AddressClass> = new Set(['loopback', 'private', 'link-local', 'carrier-nat']);

function rows(kind: AddressClass, canonical: boolean, hosts: readonly string[]): readonly AddressVector[] {
  return hosts.map((host) => ({
    host,
    class: kind,
    canonical,
    callback: kind === 'public' ? 'accepted' : 'refused',
    tunnel: TUNNEL_CLASSES.has(kind) ? 'accepted' : 'refused',
  }));
}

export const ADDRESS_VECTORS: readonly AddressVector[] = [
  ...rows('loopback', true, [
    '127.0.0.1',
    '127.255.255.254',
    '[::1]',
    '::1',
    '0:0:0:0:0:0:0:1',
    '::ffff:127.0.0.1',
    '[::ffff:7f00:1]',
    '::127.0.0.1',
    '::ffff:0:127.0.0.1',
    '64:ff9b::127.0.0.1',
    '64:ff9b::7f00:1',
    '2002:7f00:0001::',
    '2001:0:4136:e378:8000:63bf:80ff:fffe',
  ]),
  ...rows('loopback', false, [
    '2130706433',
    '0x7f000001',
    '0x7f.1',
    '0x7F.0x0.0x0.0x1',
    '0177.0.0.1',
    '017700000001',
    '127.1',
    '127.0.1',
    '127.0.0.1.',
    '\uff11\uff12\uff17.\uff10.\uff10.\uff11',
    '127\u30020\u30020\u30021',
    '%31%32%37.0.0.1',
    '\u2460\u2461\u2466.0.0.1',
  ]),
  ...rows('unspecified', true, ['0.0.0.0', '[::]', '::', '::ffff:0.0.0.0', '64:ff9b::', '2002::']),
  ...rows('unspecified', false, ['0', '0x0', '0.0', '00000000']),
  ...rows('private', true, [
    '10.0.0.1',
    '10.255.255.255',
    '172.16.0.1',
    '172.29.10.1',
    '172.31.255.255',
    '192.168.0.1',
    '192.168.255.255',
    '::ffff:10.1.2.3',
    'fc00::1',
    'fd12:3456:789a::1',
    'fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff',
    'fec0::1',
    '64:ff9b::10.0.0.1',
    '2002:c0a8:0101::1',
  ]),
  ...rows('private', false, ['167772161', '0xa000001', '10.1', '0300.0250.0.1', '192.168.257']),
  ...rows('link-local', true, ['169.254.0.1', '169.254.255.255', 'fe80::1', 'fe80::1%eth0', 'febf::1', '[fe80::1]']),
  ...rows('metadata', true, [
    '169.254.169.254',
    '169.254.170.2',
    '169.254.170.23',
    '169.254.42.42',
    '169.254.0.23',
    '192.0.0.192',
    '100.100.100.200',
    '168.63.129.16',
    'fd00:ec2::254',
    'fd00:ec2::23',
    'fd00:42::42',
    'fd20:ce::254',
    'fe80::a9fe:a9fe',
    '::ffff:169.254.169.254',
    '64:ff9b::a9fe:a9fe',
    '[::ffff:a9fe:a9fe]',
  ]),
  ...rows('metadata', false, ['2852039166', '0xa9fea9fe', '0251.0376.0251.0376', '169.254.43518']),
  ...rows('carrier-nat', true, ['100.64.0.1', '100.127.255.254', '::ffff:100.64.0.1']),
  ...rows('carrier-nat', false, ['1681915905', '100.4194305']),
  ...rows('multicast', true, ['224.0.0.1', '239.255.255.250', 'ff02::1', 'ff0e::1']),
  ...rows('broadcast', true, ['255.255.255.255', '::ffff:255.255.255.255']),
  ...rows('broadcast', false, ['4294967295', '0xffffffff', '037777777777']),
  ...rows('reserved', true, [
    '0.1.2.3',
    '192.0.0.8',
    '192.0.2.1',
    '192.88.99.1',
    '198.18.0.1',
    '198.19.255.255',
    '198.51.100.7',
    '203.0.113.7',
    '240.0.0.1',
    '255.255.255.254',
    '::8.8.8.8',
    '::ffff:0:8.8.8.8',
    '64:ff9b:1::1',
    '100::1',
    '2001:db8::1',
    '2001:2::1',
    '2001:20::1',
    '2002:808:808::1',
    '2001:0:4136:e378:8000:63bf:f7f7:f7f7',
    '3fff::1',
    '5f00::1',
    '4000::1',
    'fe00::1',
  ]),
  ...rows('public', true, [
    '1.1.1.1',
    '8.8.8.8',
    '9.255.255.255',
    '11.0.0.0',
    '100.63.255.255',
    '100.128.0.0',
    '126.255.255.255',
    '128.0.0.0',
    '169.253.255.255',
    '169.255.0.0',
    '172.15.255.255',
    '172.32.0.0',
    '192.167.255.255',
    '192.169.0.0',
    '198.17.255.255',
    '198.20.0.0',
    '223.255.255.255',
    '::ffff:8.8.8.8',
    '64:ff9b::8.8.8.8',
    '2606:4700:4700::1111',
    '2a00:1450:4001:82a::200e',
    '3ffe::1',
  ]),
  ...rows('public', false, ['134744072', '0x08080808', '8.8.2056']),
];

/** The first and the last address of each range, and those right before and after it that are something else. */
export const BORDERS: Readonly<Partial<Record<AddressClass, readonly string[]>>> = {
  loopback: ['127.0.0.0', '127.255.255.255'],
  private: [
    ...['10.0.0.0', '10.255.255.255', '172.16.0.0', '172.31.255.255', '192.168.0.0', '192.168.255.255'],
    ...['fc00::', 'fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff', 'fec0::', 'feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff'],
    ...['fd00:ec2::253', 'fd00:ec2::255', 'fd00:ec2::22', 'fd00:ec2::24', 'fd00:ec2:1::254', 'fd00:ec2::1:254'],
    ...['fd00:ec3::254', 'fd20:ce::253', 'fd20:ce::255', 'fd00:42::41', 'fd00:42::43'],
  ],
  'link-local': [
    ...['169.254.0.0', '169.254.255.255', 'fe80::', 'febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff'],
    ...['169.254.169.253', '169.254.169.255', '169.254.170.1', '169.254.170.3', '169.254.170.22', '169.254.170.24'],
    ...['169.254.42.41', '169.254.42.43', '169.254.0.22', '169.254.0.24', 'fe80::a9fe:a9fd', 'fe80::a9fe:a9ff'],
  ],
  'carrier-nat': ['100.64.0.0', '100.127.255.255', '100.100.100.199', '100.100.100.201'],
  multicast: ['224.0.0.0', '239.255.255.255', 'ff00::', 'ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff'],
  broadcast: ['2001::', '2001:0:1:2:3:4::'],
  reserved: [
    ...['0.0.0.1', '0.255.255.255', '192.0.0.0', '192.0.0.191', '192.0.0.193', '192.0.0.255', '192.0.2.0'],
    ...['192.0.2.255', '192.88.99.0', '192.88.99.255', '198.18.0.0', '198.19.255.255', '198.51.100.0'],
    ...['198.51.100.255', '203.0.113.0', '203.0.113.255', '240.0.0.0', '::2', '::1:0:0', '1::'],
    ...['64:ff9b::1:0:0', '64:ff9b:1::', '64:ff9a::8.8.8.8', '64:ff9c::8.8.8.8', '1fff:ffff::', '4000::'],
    ...['2001:1::', '2001:1ff:ffff::', '2001:db8::', '2001:db8:ffff::', '3fff::', '3fff:fff:ffff::', 'fbff:ffff::'],
    ...['fe00::', 'fe7f:ffff::'],
  ],
  public: [
    ...['1.0.0.0', '168.63.129.15', '168.63.129.17', '191.255.255.255', '192.0.1.0', '192.0.1.255', '192.0.3.0'],
    ...['192.88.98.255', '192.88.100.0', '198.51.99.255', '198.51.101.0', '203.0.112.255', '203.0.114.0'],
    ...['2000::', '2001:200::', '2001:db7:ffff::', '2001:db9::', '2003::', '3ffe:ffff::', '3fff:1000::', '3fff:ffff::'],
  ],
};

/** Names that are refused as a callback before any lookup. */
export const REFUSED_NAMES: readonly string[] = [
  'localhost',
  'localhost.',
  'LOCALHOST',
  'api.localhost',
  'metadata.google.internal',
  'metadata.google.internal.',
  'Metadata.Google.Internal',
  'metadata',
  'metadata.goog',
  'metadata.azure.internal',
  'metadata.packet.net',
  'metadata.platformequinix.com',
  'metadata.tencentyun.com',
  'instance-data',
  'instance-data.ec2.internal',
];

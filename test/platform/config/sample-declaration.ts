import type { Static } from 'typebox';
import {
  type Resolution,
  type ResolveInput,
  resolveSettings,
} from '../../../src/platform/config/load-configuration.ts';
import { setting } from '../../../src/platform/config/setting.ts';
import type { SettingsDeclaration } from '../../../src/platform/config/setting-declaration.ts';

const schema = setting.group('A garden.', {
  listen: setting.listenAddress({ default: '', flag: '--listen', description: 'Where it listens.' }),
  folder: setting.path({ default: '', flag: '--folder', description: 'Where it lies.' }),
  verbose: setting.flag({ default: false, flag: '--verbose', description: 'Says more.' }),
  gate: setting.group('The gate.', {
    password: setting.token({ default: '', env: 'GATE_PASSWORD', reload: true, description: 'Opens it.' }),
    guest_password: setting.token({
      default: '',
      emptyClears: true,
      reload: true,
      description: 'Opens it for guests.',
    }),
    width: setting.integer({ default: 3, minimum: 1, maximum: 9, description: 'How wide it is.' }),
    mood: setting.choice(['open', 'closed'], { default: 'open', description: 'How it stands.' }),
    wait: setting.duration({ default: '30s', minimum: '1s', maximum: '1h', description: 'How long it waits.' }),
  }),
  store: setting.group('The shed.', {
    url: setting.url({ schemes: ['shed'], credentials: true, default: '', description: 'Where it is.' }),
  }),
  colors: setting.list(setting.text({}), { default: ['green'], env: 'GARDEN_COLORS', description: 'Its colours.' }),
  friends: setting.list(setting.text({}), { description: 'Who may come.' }),
  beds: setting.list(
    setting.group('', {
      name: setting.text({ description: 'Its name.' }),
      key: setting.token({ default: '', reload: true, description: 'Its key.' }),
      depth: setting.number({ default: 0.5, minimum: 0, maximum: 2, description: 'How deep it is.' }),
    }),
    { description: 'The beds.' },
  ),
  notes: setting.record(setting.text({ default: '', secret: 'maybe' }), {
    keyPattern: '^[a-z_]+$',
    keyExpects: 'words in small letters',
    description: 'Notes.',
  }),
});

export type Garden = Static<typeof schema>;

export const garden: SettingsDeclaration<Garden> = {
  schema,
  environmentPrefix: 'GARDEN_',
  fileVariable: 'GARDEN_CONFIG',
  fileName: 'garden.yaml',
  otherVariables: ['GARDEN_SEASON'],
  check: ({ gate, beds }) => [
    ...(gate.password !== '' && gate.password === gate.guest_password
      ? [{ path: 'gate.guest_password', wrong: 'it is the same', right: 'change it', involves: ['gate.password'] }]
      : []),
    ...beds.flatMap(({ name }, index) =>
      name === 'weeds' ? [{ path: `beds[${index}].name`, wrong: 'there are weeds', right: 'pull them' }] : [],
    ),
  ],
};

/** Resolves with a file text, variables and flags; everything else is fixed. */
export function resolveGarden(
  text?: string,
  environment: Readonly<Record<string, string>> = {},
  flags: ResolveInput<Garden>['flags'] = {},
  mode = 0o600,
): Resolution<Garden> {
  return resolveSettings({
    declaration: garden,
    ...(text !== undefined && { file: { text, name: 'garden.yaml', directory: '/etc/garden', mode } }),
    environment,
    flags,
    homeDirectory: '/home/ann',
    workingDirectory: '/work',
  });
}

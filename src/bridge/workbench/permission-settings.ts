import { setting } from '../../platform/config/setting.ts';

/** The part of `bridge.*` that decides about what agents ask. */
export const permissionSettings = {
  permission_rules: setting.list(
    setting.group('', {
      when: setting.group('What the rule is about; all that is given must fit.', {
        kind: setting.text({
          default: '',
          pattern: '^[a-z_]{0,32}$',
          expects: 'a kind of tool such as execute or edit',
          description:
            'The kind of the tool: execute, edit, delete, move, read, search, fetch, other, or question for a question with a form.',
        }),
        command: setting.list(setting.text({ default: '' }), {
          description:
            'The first words of a command. An allow matches plain commands alone, without anything that a shell interprets; a deny matches these words anywhere in a command.',
        }),
        path: setting.text({
          default: '',
          description: 'A pattern for paths, absolute, from the working directory, or with `**` in front: `**/.env*`.',
        }),
      }),
      decision: setting.choice(['allow', 'deny'], { default: 'deny', description: 'What the rule decides.' }),
    }),
    {
      reload: true,
      description:
        'Rules for what agents ask. A deny wins over everything; an allow decides without asking, also where a call asked to be asked.',
    },
  ),
  permission_timeout: setting.duration({
    default: '10m',
    minimum: '10s',
    maximum: '50m',
    reload: true,
    description: 'A question of an agent that nobody answers for this long is answered with no.',
  }),
};

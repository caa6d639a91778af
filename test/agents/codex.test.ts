import { describeAgent } from './agent-behaviour.ts';

describeAgent('codex', {
  protocol: 'codex',
  continuesElsewhere: true,
  otherModel: { asked: 'second-model', seen: 'second-model' },
  unknownModel: 'passed on',
  usage: { inputTokens: 11, outputTokens: 7, totalTokens: 18 },
});

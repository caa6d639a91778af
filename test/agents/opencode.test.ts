import { describeAgent } from './agent-behaviour.ts';

describeAgent('opencode', {
  protocol: 'acp',
  continuesElsewhere: true,
  otherModel: { asked: 'second-model', seen: 'second-model' },
  unknownModel: 'reported',
  usage: { inputTokens: 11, outputTokens: 7, totalTokens: 18, costUsd: 0 },
});

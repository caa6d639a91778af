import { describeAgent } from './agent-behaviour.ts';

describeAgent('gemini', {
  protocol: 'acp',
  continuesElsewhere: false,
  otherModel: { asked: 'gemini-2.5-pro', seen: 'gemini-2.5-pro' },
  unknownModel: 'reported',
  usage: { inputTokens: 11, outputTokens: 7, totalTokens: 18 },
});

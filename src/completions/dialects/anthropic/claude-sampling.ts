import type { ChatRequest } from '../../contract/chat.ts';
import type { ClaudeModel } from './claude-model.ts';

/** What of temperature and top_p the model takes; what it does not is added to `dropped`. */
export function readSampling(
  request: ChatRequest,
  { samplingFields }: ClaudeModel,
  hasBudget: boolean,
  dropped: Set<string>,
): { readonly temperature?: number; readonly topP?: number } {
  const temperature = request.temperature ?? undefined;
  const topP = request.top_p ?? undefined;
  const takesTemperature = samplingFields > 0 && !hasBudget;
  const takesTopP = takesTemperature && (samplingFields > 1 || temperature === undefined);
  if (temperature !== undefined && !takesTemperature) dropped.add('temperature');
  if (topP !== undefined && !takesTopP) dropped.add('top_p');
  return {
    ...(temperature !== undefined && takesTemperature && { temperature }),
    ...(topP !== undefined && takesTopP && { topP }),
  };
}

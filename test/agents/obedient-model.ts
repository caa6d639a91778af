import { messages } from '../kit/scripted-claude.ts';
import { type ModelReply, type ModelRequest, type ScriptedModel, startScriptedModel } from '../kit/scripted-model.ts';

/** The tool of each agent that runs a command, and how it wants to be called. */
const SHELLS: Readonly<Record<string, (command: string) => Readonly<Record<string, unknown>>>> = {
  exec_command: (command) => ({ cmd: command }),
  Bash: (command) => ({ command, description: 'as told' }),
  bash: (command) => ({ command, description: 'as told' }),
  run_shell_command: (command) => ({ command }),
};

const REMINDERS = /<system-reminder>.*?<\/system-reminder>/gs;

/**
 * A model that does what the prompt says. `SAY word`: says it, in three pieces. `RUN command`: runs it with the agent's
 * own tool and repeats what that printed. `CALL server tool {…}`: does so with that tool and these arguments, if any. `LOOK`: says how
 * many images it sees. `WAIT`: starts to speak and never ends. `RECALL`: lists all words that it was told to say before in
 * the same conversation.
 */
export function startObedientModel(): Promise<ScriptedModel> {
  return startScriptedModel(obey, [messages]);
}

function obey({ model, userTexts: all, toolResults, toolNames, images }: ModelRequest): ModelReply {
  // Prompts of the agents themselves, such as for a title, offer no tools.
  if (toolNames.length === 0) return { text: ['a title'] };
  // Some agents speak as the user, to remind the model of something.
  const userTexts = all.map((text) => text.replaceAll(REMINDERS, '').trim()).filter((text) => text !== '');
  const last = userTexts.at(-1) ?? '';
  const shell = toolNames.find((name) => Object.hasOwn(SHELLS, name));
  const command = /RUN ([^\n]+)/.exec(last)?.[1];
  if (command !== undefined && shell !== undefined) {
    if (toolResults.length > 0) return { text: ['It printed: ', toolResults.join(' ')] };
    return { text: ['I run it.'], toolCall: { name: shell, arguments: SHELLS[shell]?.(command) ?? {} } };
  }
  const [, server = '', tool, given = '{}'] = /CALL (\w+) (\w+)(?: (\{[^\n]*\}))?/.exec(last) ?? [];
  if (tool !== undefined) return callTool({ server, tool, given: JSON.parse(given) }, toolNames, toolResults);
  if (last.includes('LOOK')) return { text: [`I see ${images} image(s).`] };
  if (last.includes('WAIT')) return { text: ['I wait'], endless: true };
  if (last.includes('RECALL')) return { text: [`Said: ${wordsOf(userTexts).join(' ')}.`] };
  return {
    thinking: 'I was told to say something.',
    text: ['Here ', 'is ', `${wordsOf([last]).join('')} from ${model}.`],
  };
}

/** Some agents hide the tools of MCP servers behind two of their own: one that finds them, and one that calls them. */
function callTool(
  {
    server,
    tool,
    given,
  }: { readonly server: string; readonly tool: string; readonly given: Readonly<Record<string, unknown>> },
  toolNames: readonly string[],
  toolResults: readonly string[],
): ModelReply {
  const full = `mcp__${server}__${tool}`;
  const shown = toolNames.find((name) => name.endsWith(tool));
  const calls =
    shown === undefined
      ? [
          { name: 'tool_search', arguments: { query: `select:${full}` } },
          { name: 'tool_call', arguments: { name: full, arguments: given } },
        ]
      : [{ name: shown, arguments: given }];
  const toolCall = calls[toolResults.length];
  return toolCall === undefined
    ? { text: ['It answered: ', toolResults.join(' ')] }
    : { text: ['I call it.'], toolCall };
}

function wordsOf(texts: readonly string[]): readonly string[] {
  return texts.flatMap((text) => /SAY (\w+)/.exec(text)?.[1] ?? []);
}

import type { SystemSummary } from '../system/system-summary.ts';

const LABEL_WIDTH = 14;

/** What a person sees when the server is ready. `bold` marks up the names, or leaves them as they are. */
export function bannerText(summary: SystemSummary, bold: (text: string) => string): string {
  const { version, dataDirectory, database, url, exposure, agents } = summary;
  const line = (label: string, text: string) => `  ${bold(label)}${' '.repeat(LABEL_WIDTH - label.length)}${text}`;
  const socketUrl = url.replace(/^http/, 'ws');
  const lines = [
    `  ${bold(`trestle ${version}`)}   data ${dataDirectory} (${database})   ${exposure}`,
    '',
    ...summary.services.flatMap((service) => {
      if (service === 'bridge') return [line('Bridge', `${socketUrl}/acp        POST /acp/rpc`)];
      if (service === 'completions') return [line('Completions', `${url}/v1       OPENAI_BASE_URL=${url}/v1`)];
      return [line('Accounts', `${url}/api/auth`)];
    }),
    line('API page', `${url}/docs`),
  ];
  if (agents.length > 0) {
    const found = agents.map((agent) => `${agent.id} ${stateOf(agent)}`).join('   ');
    lines.push(line('Agents', `${found}      (trestle doctor)`));
  }
  if (summary.firstAdmin !== undefined) lines.push(line('First admin', `${summary.firstAdmin}  (once, 15 min)`));
  lines.push('', line('Try', tryLine(summary)), '');
  return `${lines.join('\n')}\n`;
}

function stateOf({ status, model }: SystemSummary['agents'][number]): string {
  const state = status.replaceAll('_', ' ');
  return model === undefined ? state : `${state} (${model})`;
}

/** A call that works as printed: on a guarded server the token stays out of sight. */
function tryLine({ services, url, guarded }: SystemSummary): string {
  const json = `-H 'content-type: application/json'`;
  if (services.includes('bridge')) {
    const body = `{"jsonrpc":"2.0","id":"1","method":"session.start","params":{"sessionId":"first","taskPrompt":"Hello"}}`;
    const token = guarded.includes('bridge') ? ` -H "authorization: Bearer $BRIDGE_AUTH_TOKEN"` : '';
    return `curl ${url}/acp/rpc ${json}${token} -d '${body}'`;
  }
  if (services.includes('completions')) {
    const body = `{"model":"demo/echo","messages":[{"role":"user","content":"Hello"}]}`;
    const key = guarded.includes('completions') ? ` -H "authorization: Bearer $COMPLETIONS_MASTER_KEY"` : '';
    return `curl ${url}/v1/chat/completions ${json}${key} -d '${body}'`;
  }
  return `curl ${url}/healthz`;
}

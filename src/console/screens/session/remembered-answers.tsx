import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import type { StoredRule, Summary } from '../../../bridge/contract/workbench.ts';
import { listRules, removeRule } from '../../data/bridge.ts';
import { Dialog, ErrorBox, Moment } from '../../parts/parts.tsx';
import { shortPath, visible } from '../../parts/text.ts';
import { useWork } from '../../parts/work.tsx';
import { useConsole, useOwnName } from '../../shell/console-context.ts';
import { useOwnerText } from '../teams/own-teams.ts';

interface RememberedAnswersProps {
  readonly session: Summary;
  readonly onClose: () => void;
}

/** The answers that are given without asking again, and how to take one back. */
export function RememberedAnswers({ session, onClose }: RememberedAnswersProps) {
  const { owner } = session;
  const queries = useQueryClient();
  const work = useWork();
  const [showsAll, setShowsAll] = useState(false);
  // An answer that was just given is among them.
  const { data, error } = useQuery({ queryKey: ['rules', owner], queryFn: () => listRules(owner), staleTime: 0 });
  const here = (data ?? []).filter((rule) => isRuleOf(rule, session));
  const shown = showsAll ? (data ?? []) : here;
  const others = (data ?? []).length - here.length;
  const forget = ({ ruleId }: StoredRule) =>
    work.run(async () => {
      await removeRule(ruleId);
      await queries.invalidateQueries({ queryKey: ['rules', owner] });
    });
  return (
    <Dialog title="Remembered answers" onClose={onClose}>
      <p className="quiet">
        Agents get these answers without asking. An answer counts for exactly one command or path, in its session or its
        folder, for 30 days.
      </p>
      <ErrorBox error={error ?? work.problem} />
      {data !== undefined && shown.length === 0 ? <p>No answer is remembered for this session or its folder.</p> : null}
      <ul className="rules">
        {shown.map((rule) => (
          <li key={rule.ruleId}>
            <RuleLine rule={rule} />
            <button
              type="button"
              disabled={work.isBusy}
              aria-label={`Forget ${visible(matched(rule))}`}
              onClick={() => forget(rule)}
            >
              Forget
            </button>
          </li>
        ))}
      </ul>
      {others > 0 && !showsAll ? (
        <button type="button" onClick={() => setShowsAll(true)}>
          Show {others} of other folders and sessions
        </button>
      ) : null}
    </Dialog>
  );
}

/** Whether a rule counts for a session: it is for that session, or for the folder that it works in. */
const isRuleOf = (rule: StoredRule, { sessionId, folder }: Summary) =>
  rule.scope === 'session' ? rule.sessionId === sessionId : rule.folder === folder;

const matched = ({ when: { command, path, kind } }: StoredRule) =>
  [command?.join(' ') ?? '', path ?? ''].filter(Boolean).join(' ') || kind;

function RuleLine({ rule }: { readonly rule: StoredRule }) {
  const { decision, scope, sessionId, folder, createdBy, expiresAt } = rule;
  const own = useOwnName();
  const { person } = useConsole();
  const ownerText = useOwnerText();
  const place = scope === 'session' ? `in the session ${visible(sessionId)}` : `in ${visible(shortPath(folder))}`;
  const by = createdBy === own ? (person === undefined ? '' : ' · by you') : ` · by ${ownerText(createdBy)}`;
  return (
    <div>
      <span className={decision === 'allow' ? 'allowed' : 'denied'}>{decision === 'allow' ? 'Allow' : 'Deny'}</span>{' '}
      <code>{visible(matched(rule))}</code>
      <p className="quiet" title={folder}>
        {place}
        {by} · until <Moment at={expiresAt} />
      </p>
    </div>
  );
}

import { useInfiniteQuery, useQuery, useQueryClient } from '@tanstack/react-query';
import { type FormEvent, useState } from 'react';
import { Link, useLocation } from 'wouter';
import type { Schedule } from '../../../bridge/contract/schedules.ts';
import {
  changeSchedule,
  createSchedule,
  jobAddress,
  listAgents,
  listSchedules,
  readSchedule,
  removeSchedule,
  runSchedule,
} from '../../data/bridge.ts';
import { cronText, everyText } from '../../parts/cron-text.ts';
import { AgentField, Dialog, ErrorBox, Field, Moment, More, TaskField } from '../../parts/parts.tsx';
import { TIME_ZONE, visible } from '../../parts/text.ts';
import { Confirm, CopyCurl, useWork, type Work, WorkNotes } from '../../parts/work.tsx';
import { useOwnName } from '../../shell/console-context.ts';
import { FolderField } from '../board/new-session.tsx';
import { JobTabs } from './jobs.tsx';

/** Schedules fire without anyone looking: the list is read again now and then. */
const REFRESH_MS = 15_000;

/** Tasks that become jobs at certain times. */
export default function Schedules() {
  const queries = useQueryClient();
  const work = useWork();
  const [isNew, setNew] = useState(false);
  const [shown, setShown] = useState<string>();
  const [removed, setRemoved] = useState<Schedule>();
  const refresh = () => queries.invalidateQueries({ queryKey: ['schedules'] });
  const pages = useInfiniteQuery({
    queryKey: ['schedules'],
    queryFn: ({ pageParam }) => listSchedules(pageParam === '' ? {} : { cursor: pageParam }),
    initialPageParam: '',
    getNextPageParam: ({ nextCursor }) => nextCursor,
    refetchInterval: REFRESH_MS,
  });
  const { data, error } = pages;
  const schedules = data?.pages.flatMap((page) => page.schedules) ?? [];
  return (
    <>
      <header className="bar">
        <h1>Schedules</h1>
        <JobTabs />
        <span className="quiet">Times are in {TIME_ZONE}</span>
        <button type="button" className="button primary" onClick={() => setNew(true)}>
          New schedule
        </button>
      </header>
      <ErrorBox error={error} />
      <WorkNotes work={work} />
      {data === undefined && error === null ? <p className="quiet loading">Loading …</p> : null}
      {data !== undefined && schedules.length === 0 ? (
        <section className="empty">
          <h2>No schedules yet</h2>
          <p>A schedule runs a task as a job at set times, such as every morning.</p>
        </section>
      ) : null}
      {schedules.length === 0 ? null : (
        <Table
          schedules={schedules}
          work={work}
          onChanged={refresh}
          onShow={(schedule) => setShown(schedule.scheduleId)}
          onRemove={setRemoved}
        />
      )}
      <More of={pages}>Older schedules</More>
      {isNew ? <NewSchedule onClose={() => setNew(false)} onMade={refresh} /> : null}
      {shown === undefined ? null : <Details scheduleId={shown} onClose={() => setShown(undefined)} />}
      {removed === undefined ? null : (
        <Confirm
          title={`Remove “${visible(removed.name)}”?`}
          text="It starts no more jobs. Its earlier jobs stay."
          action="Remove it"
          onClose={() => setRemoved(undefined)}
          onYes={() =>
            work.run(async () => {
              await removeSchedule(removed.scheduleId);
              await refresh();
            })
          }
        />
      )}
    </>
  );
}

interface TableProps {
  readonly schedules: readonly Schedule[];
  readonly work: Work;
  readonly onChanged: () => Promise<void>;
  readonly onShow: (schedule: Schedule) => void;
  readonly onRemove: (schedule: Schedule) => void;
}

function Table({ schedules, work, onChanged, onShow, onRemove }: TableProps) {
  const own = useOwnName();
  const [, go] = useLocation();
  const isShared = schedules.some(({ owner }) => owner !== own);
  const names = ['Name', 'When', 'Next', 'Last', ...(isShared ? ['Owner'] : []), ''];
  return (
    <div className="scrolls">
      <table className="list stacks">
        <thead>
          <tr>
            {names.map((name) => (
              <th key={name}>{name === '' ? <span className="hidden-label">Actions</span> : name}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {schedules.map((schedule) => (
            <tr key={schedule.scheduleId}>
              <td>
                <button type="button" className="link" onClick={() => onShow(schedule)}>
                  {visible(schedule.name)}
                </button>
              </td>
              <td data-name="When">
                <When schedule={schedule} />
              </td>
              <td data-name="Next">{schedule.nextAt === null ? 'paused' : <Moment at={schedule.nextAt} />}</td>
              <td data-name="Last">
                <LastTime schedule={schedule} />
              </td>
              {isShared ? <td data-name="Owner">{visible(schedule.owner)}</td> : null}
              <td className="answers">
                <button
                  type="button"
                  disabled={work.isBusy}
                  onClick={() =>
                    work.run(async () => {
                      await changeSchedule(schedule.scheduleId, { enabled: !schedule.enabled });
                      await onChanged();
                    })
                  }
                >
                  {schedule.enabled ? 'Pause' : 'Resume'}
                </button>
                <button
                  type="button"
                  disabled={work.isBusy}
                  onClick={() => work.run(async () => go(jobAddress((await runSchedule(schedule.scheduleId)).jobId)))}
                >
                  Run now
                </button>
                <button type="button" disabled={work.isBusy} onClick={() => onRemove(schedule)}>
                  Remove …
                </button>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function LastTime({ schedule: { last, lastJobId } }: { readonly schedule: Schedule }) {
  return (
    <>
      {last === null ? null : (
        <>
          {last.result} <Moment at={last.at} /> {visible(last.message)}
        </>
      )}{' '}
      {lastJobId === null ? null : <Link href={jobAddress(lastJobId)}>Last job</Link>}
    </>
  );
}

/** In words, with the pattern; a zone is named where it is another one than that of the page. */
function When({ schedule: { cron, every, timezone } }: { readonly schedule: Schedule }) {
  if (every !== null) return everyText(every);
  const words = cronText(cron ?? '');
  const zone = timezone === TIME_ZONE ? '' : ` ${timezone}`;
  return (
    <>
      {words === undefined ? '' : `${words}${zone} `}
      <code className="quiet">{visible(cron ?? '')}</code>
      {words === undefined ? zone : ''}
    </>
  );
}

/** A list has no times: they are read for one schedule. */
function Details({ scheduleId, onClose }: { readonly scheduleId: string; readonly onClose: () => void }) {
  const { data, error } = useQuery({
    queryKey: ['schedules', scheduleId],
    queryFn: () => readSchedule(scheduleId),
  });
  return (
    <Dialog title={data === undefined ? 'Schedule' : visible(data.name)} onClose={onClose}>
      <ErrorBox error={error} />
      {data === undefined ? null : (
        <>
          <pre className="code">{visible(data.task.taskPrompt ?? '')}</pre>
          <p>
            <When schedule={data} />
            {data.task.workingDirectory === undefined ? '' : ` · in ${visible(data.task.workingDirectory)}`}
          </p>
          <h3>The next times</h3>
          {data.upcoming.length === 0 ? <p>None: the schedule is paused.</p> : null}
          <ol>
            {data.upcoming.map((time) => (
              <li key={time}>
                <Moment at={time} />
              </li>
            ))}
          </ol>
          <CopyCurl path={`/api/bridge/schedules/${encodeURIComponent(data.scheduleId)}`} />
        </>
      )}
    </Dialog>
  );
}

function NewSchedule({ onClose, onMade }: { readonly onClose: () => void; readonly onMade: () => Promise<void> }) {
  const work = useWork();
  const agents = useQuery({ queryKey: ['agents'], queryFn: listAgents });
  const [prompt, setPrompt] = useState('');
  const [name, setName] = useState('');
  const [agent, setAgent] = useState('');
  const [folder, setFolder] = useState('');
  const [when, setWhen] = useState('0 8 * * 1-5');
  const isDuration = /^\d+[mhd]$/.test(when.trim());
  const words = isDuration ? everyText(when.trim()) : cronText(when);
  function submit(event: FormEvent): void {
    event.preventDefault();
    work.run(async () => {
      await createSchedule({
        name: name.trim() || (prompt.trim().split('\n')[0] ?? '').slice(0, 60),
        ...(isDuration ? { every: when.trim() } : { cron: when.trim(), timezone: TIME_ZONE }),
        task: {
          taskPrompt: prompt.trim(),
          ...(agent !== '' && { providerId: agent }),
          ...(folder.trim() !== '' && { workingDirectory: folder.trim() }),
        },
      });
      await onMade();
      onClose();
    });
  }
  return (
    <Dialog title="New schedule" onClose={onClose}>
      <form className="stack" onSubmit={submit}>
        <TaskField value={prompt} onChange={setPrompt} />
        <Field
          label="When"
          value={when}
          onChange={setWhen}
          required
          maxLength={120}
          hint="A cron pattern (minute, hour, day of month, month, day of week), or a duration such as 30m, 6h or 1d."
        />
        <p className="quiet" role="status">
          {words === undefined ? '' : `Runs ${words}${isDuration ? '' : ` (${TIME_ZONE})`}.`}
        </p>
        <Field label="Name" value={name} onChange={setName} maxLength={200} hint="The task unless given." />
        <AgentField
          value={agent}
          onChange={setAgent}
          agents={(agents.data ?? []).map((one) => ({ ...one, enabled: one.state === 'ok' }))}
          isOpen
        />
        <FolderField folder={folder} team="" onChange={setFolder} />
        <button type="submit" className="primary" disabled={work.isBusy || prompt.trim() === ''}>
          Create
        </button>
      </form>
      <WorkNotes work={work} />
    </Dialog>
  );
}

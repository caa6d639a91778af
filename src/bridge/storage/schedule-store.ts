import type { Database } from '../../platform/database/database.ts';
import { expectChanges, type Statement, unlessConflict } from '../../platform/database/statement.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import type { BridgeSchema, ScheduleRow } from './bridge-schema.ts';

/** A time at which a schedule was due is over. */
export interface ScheduleAdvance {
  /** As it was read: another bridge may have been faster. */
  readonly schedule: ScheduleRow;
  readonly nextAt: number | null;
  readonly now: number;
  readonly result: ScheduleRow['last_result'];
  readonly message: string;
  /** The job of this firing; that of an earlier one where there is none. */
  readonly jobId: string;
}

export interface ScheduleStore {
  /** Throws TOO_MANY_SCHEDULES when the owner has as many as it may. */
  add(schedule: ScheduleRow, max: number): Promise<void>;
  find(id: string): Promise<ScheduleRow | undefined>;
  /** Newest first; of all owners when none is given. */
  list(owner: string | undefined, before: string, limit: number): Promise<readonly ScheduleRow[]>;
  /** Due by now, the earliest first. */
  due(now: number, limit: number): Promise<readonly ScheduleRow[]>;
  /** Schedules whose next time was computed at a moment in the future: the clock was set back since. */
  aheadOf(moment: number, limit: number): Promise<readonly ScheduleRow[]>;
  /** The stored next time is the lock: of all bridges that find the schedule due, the statement of one changes the row. */
  advance(advance: ScheduleAdvance): Statement;
  /** The same without a job. Fails with STORAGE_CONFLICT when another bridge was faster. */
  skip(advance: ScheduleAdvance): Promise<void>;
  /** Notes a job that someone has made of it, apart from its times. */
  ran(id: string, jobId: string): Statement;
  /** False when it was changed, or fired, since it was read. */
  replace(from: ScheduleRow, to: ScheduleRow): Promise<boolean>;
  remove(id: string): Promise<void>;
  removeOf(owner: string): Promise<void>;
}

/** After every id of a schedule. */
const NEWEST = 'sch_~';

export function createScheduleStore(database: Database<BridgeSchema>): ScheduleStore {
  const { query } = database;
  const find = database.statement((build, given: { id: string }) =>
    build.selectFrom('schedules').selectAll().where('id', '=', given.id),
  );
  const due = database.statement((build, given: { now: number; limit: number }) =>
    build.selectFrom('schedules').selectAll().where('next_at', '<=', given.now).orderBy('next_at').limit(given.limit),
  );
  const aheadOf = database.statement((build, given: { moment: number; limit: number }) =>
    build.selectFrom('schedules').selectAll().where('counted_at', '>', given.moment).limit(given.limit),
  );
  const advance = database.statement((build, given: AdvanceParameters) =>
    build
      .updateTable('schedules')
      .set({
        next_at: given.nextAt,
        counted_at: given.now,
        last_at: given.now,
        last_result: given.result,
        last_message: given.message,
        last_job_id: given.jobId,
      })
      .where('id', '=', given.id)
      .where('version', '=', given.version)
      .where('next_at', '=', given.dueAt),
  );

  const ran = database.statement((build, given: { id: string; jobId: string }) =>
    build
      .updateTable('schedules')
      // Another version: changes that were read before are applied again, and do not undo this.
      .set((row) => ({ last_job_id: given.jobId, version: row('version', '+', 1) }))
      .where('id', '=', given.id),
  );

  const advanceOne = ({ schedule, ...rest }: ScheduleAdvance): Statement =>
    expectChanges(advance({ ...rest, id: schedule.id, version: schedule.version, dueAt: schedule.next_at ?? 0 }), 1);

  return {
    advance: advanceOne,
    ran: (id, jobId) => ran({ id, jobId }),
    async skip(given) {
      await database.write([advanceOne(given)]);
    },
    async add(schedule, max) {
      await database.transaction(async ({ run }) => {
        const counted = query
          .selectFrom('schedules')
          .select(({ fn }) => fn.countAll<number>().as('count'))
          .where('owner', '=', schedule.owner);
        const { rows } = await run(counted.compile());
        if (Number(rows[0]?.count) >= max) throw new AppError('TOO_MANY_SCHEDULES', { max });
        await run(query.insertInto('schedules').values(schedule).compile());
      });
    },
    find: async (id) => (await database.readKeyed(find({ id })))[0],
    list(owner, before, limit) {
      let rows = query
        .selectFrom('schedules')
        .selectAll()
        .where('id', '<', before || NEWEST);
      if (owner !== undefined) rows = rows.where('owner', '=', owner);
      return database.read(rows.orderBy('id', 'desc').limit(limit).compile());
    },
    due: (now, limit) => database.readKeyed(due({ now, limit })),
    aheadOf: (moment, limit) => database.readKeyed(aheadOf({ moment, limit })),
    async replace(from, { id, version: _version, ...changes }) {
      let update = query
        .updateTable('schedules')
        .set({ ...changes, version: from.version + 1 })
        .where('id', '=', id)
        .where('version', '=', from.version);
      update = from.next_at === null ? update.where('next_at', 'is', null) : update.where('next_at', '=', from.next_at);
      return unlessConflict(database.write([expectChanges(update.compile(), 1)]));
    },
    async remove(id) {
      await database.write([query.deleteFrom('schedules').where('id', '=', id).compile()]);
    },
    async removeOf(owner) {
      await database.write([query.deleteFrom('schedules').where('owner', '=', owner).compile()]);
    },
  };
}

interface AdvanceParameters extends Omit<ScheduleAdvance, 'schedule'> {
  readonly id: string;
  readonly version: number;
  readonly dueAt: number;
}

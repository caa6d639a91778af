import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { completionsMigrations } from '../../src/completions/storage/completions-migrations.ts';
import type { CompletionsSchema } from '../../src/completions/storage/completions-schema.ts';
import { planMigrations } from '../../src/platform/database/migrations.ts';
import { databasePlaces, engines } from '../kit/database-engines.ts';

/** What databases out there remember. A line is added with each migration; a change means that they would be refused. */
const RELEASED = {
  sqlite: {
    '0001-keys-and-usage': '5f858caa94c68281d07b21d662725ff6c8ee8f94bba542f7e2ee104ef7f76376',
    '0002-nano-usd': 'eee4f619ffe212043b77de2ed1cfae07c0ccbb76b32e881415f0468f1398eca3',
    '0003-no-tenant': '2b918cd1d43cf9e5f2638be5413662770107e9b2ab7f7270ff5b228d0fee02e7',
    '0004-upstream-objects': 'e90639bf57fc865acd3fd7ff4f0034c2cd9fb7602a937b38de0b5ce5d20b2e50',
    '0005-owners': '8bc8b3e5f1291c7e6d1c3f0b8471e0ad488347bcf61a0d803e6ed6ac7a5ee80c',
    '0006-call-log': '5b8f1f1c1f30e8120f53a8e3a41dddc94df498a8ffc85adf7bc012c7577578db',
    '0007-teams': 'a120d9c5c751880c83cb1b7f6804a77bee3dffa534a1f5d355f6e52424a84f9c',
    '0008-key-changes': '95e2d70a4b761faa2f03d31fdd81e87ba9d1dd0801611807b44afd078dc4903e',
    '0009-parallel-calls': '1e22d935c1a6c11c7da7570953c54300278f5f51c215b1bbf73785b7a9384400',
    '0010-usage-quarters': 'b47db0adb7a5f7e2c3d9a51ae0dac7820a724984bea70c2563fea5c2533d0812',
    '0011-catalogues': '6fe66c559b337de5fe616fe25a0d9332a79ee50ab75bc18d828974ed33ae6146',
    '0012-stored-files': 'af204bafeb4116b340ad4864460944ce7aefb75204a16ccc4395f2fa6b802291',
    '0013-exports': '2069a1882e1a0a9e04b64eea63708e4ec6d68105dd37730d5e3697d585533534',
    '0014-key-content': 'abb2211888b8f54f211d500753f3e8b437b6820fbcfe148d87aba25cc9672450',
    '0015-budget-leases': '261871fdde270fda2b15cda6871995d1c9f87109ca2aab7916de0f0c1d93ecb2',
    '0016-objects-of-owners': '2438adce0f04884d36402e0fbfdd40f02539ff01757f00e1f820fa7297c95b3c',
  },
  postgres: {
    '0001-keys-and-usage': '28fcb45c254eea4a70607b4ca2c53f820d3a78b2a42baae36972740c5158e6df',
    '0002-nano-usd': '5cbfd7190aa65c04a0641f0fdc6acef381fedc2a3ef004b6bbd81003452a95b8',
    '0003-no-tenant': '2b918cd1d43cf9e5f2638be5413662770107e9b2ab7f7270ff5b228d0fee02e7',
    '0004-upstream-objects': '64f5cf6f3be09ef85c8df5f0e70724a4533cab9fbc988f11accdeadcf659e0a1',
    '0005-owners': '8bc8b3e5f1291c7e6d1c3f0b8471e0ad488347bcf61a0d803e6ed6ac7a5ee80c',
    '0006-call-log': '0c56b713a7b84ccb65a57622c0c354b4e4493e6c582bd5e8d9ae8a78aa2bec67',
    '0007-teams': 'b0df48ee686b262c28b0ca49b5a94b4d1d2c13f1ddd8e5c79b33ce9b6a4686ac',
    '0008-key-changes': 'ce7a484b4c4c5b2238c44b7b366212733d38639efa2c845b94f4ba0657342bc0',
    '0009-parallel-calls': '057d12ccd92dcb5a0f28dc3cd210ef735ed27557febb60d48e836e3ff74aed9a',
    '0010-usage-quarters': 'bc36663ebf1ca1b2bfaca1c7423474d2c9e455852915a63a01ec89b982c59453',
    '0011-catalogues': 'fc9b568688d0e9a191cf610b2d067922c0e42f68ec1145883b8511bffe765df8',
    '0012-stored-files': '4dcee6d30b2dff27aa020655e9eac98b0981d83e102177d2547d8aa3905b4b65',
    '0013-exports': 'cf9eff2f7b20217c41a5da4451182eea256947c7ec9ef3510a2b70f78b027809',
    '0014-key-content': '98dcf5091850413b40a4cd8ea1bd9cf4ef435fd4912fe258f109c80afca1c30f',
    '0015-budget-leases': '32b4c442490b22ef6320b4bbf57c289c8b98090777119a68391108ef6cb3b019',
    '0016-objects-of-owners': '2438adce0f04884d36402e0fbfdd40f02539ff01757f00e1f820fa7297c95b3c',
  },
};

for (const engine of ['sqlite', 'postgres'] as const) {
  test(`O-10: released migrations of completions still compile to the same statements on ${engine}`, () => {
    const plan = planMigrations(engine, completionsMigrations);
    assert.deepEqual(Object.fromEntries(plan.map(({ id, checksum }) => [id, checksum])), RELEASED[engine]);
  });
}

for (const engine of engines) {
  describe(`spending of release 0.1.0 on ${engine}`, () => {
    const { open, location } = databasePlaces(engine);

    test('DC-28: what release 0.1.0 recorded in USD is kept as nano-USD', async () => {
      const place = { location: location(engine) };
      const old = await open<{ key_spending: Record<string, unknown> }>(
        { name: 'completions', migrations: completionsMigrations.slice(0, 1) },
        place,
      );
      const row = { key_id: 'k', period: 'total', cost_usd: 0.1 + 0.2 };
      await old.write([old.query.insertInto('key_spending').values(row).compile()]);
      await old.close();
      const now = await open<CompletionsSchema>({ name: 'completions', migrations: completionsMigrations }, place);
      const rows = await now.query.selectFrom('key_spending').select(['key_id', 'period', 'cost_nano_usd']).execute();
      assert.deepEqual(rows, [{ key_id: 'k', period: 'total', cost_nano_usd: 300_000_000 }]);
    });

    test('users of release 0.1.0 own their keys as user:<id>, and labels of operators stay as they are', async () => {
      const place = { location: location(engine) };
      const old = await open<{ keys: Record<string, unknown> }>(
        { name: 'completions', migrations: completionsMigrations.slice(0, 4) },
        place,
      );
      const key = { name: 'k', hint: 'tsk_', models: '[]', created_at: 1 };
      const owners = ['usr_1', '', 'team-usr_1', 'usrx1'];
      const rows = owners.map((owner, index) => ({ ...key, id: `key_${index}`, digest: `d${index}`, owner }));
      await old.write([old.query.insertInto('keys').values(rows).compile()]);
      await old.close();
      const now = await open<CompletionsSchema>({ name: 'completions', migrations: completionsMigrations }, place);
      const found = await now.query.selectFrom('keys').select('owner').orderBy('id').execute();
      assert.deepEqual(
        found.map(({ owner }) => owner),
        ['user:usr_1', '', 'team-usr_1', 'usrx1'],
      );
    });
  });
}

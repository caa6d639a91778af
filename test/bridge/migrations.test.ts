import assert from 'node:assert/strict';
import { test } from 'node:test';
import { bridgeMigrations } from '../../src/bridge/storage/bridge-migrations.ts';
import { planMigrations } from '../../src/platform/database/migrations.ts';

/** What databases out there remember. A line is added with each migration; a change means that they would be refused. */
const RELEASED = {
  sqlite: {
    '0001-instances': '10c98cef1fa91dd339b5525aac7f06f4178721f88de189b879a2b969d499c403',
    '0002-sessions': '2179f40a44f020ce5951b101d068566fc94b249befc631d779d8d1da6d5c14c5',
    '0003-builtin-conversations': '2a4afd60d97e862e63c96a613cd0dd350564357403154d61179c92f2924aced3',
    '0004-artifacts': '1041353c02f0cc970b3cc0bbdefc22b78f03aca0974731a1a9f47d78662960f3',
    '0005-jobs': '37e22c86f87a17ab5e9c42ccdfd9c45e0d124dda39f25c806ac7a814f551055d',
    '0006-session-routes': '8db581630873004d7ce92a894978ed7ca71858d612747a3735131fd2384cad33',
    '0007-lookups': '0a46ef6de25d5db895427982cbe5010001b373254135a499296ae6a067bd9908',
    '0008-jobs-wait-in-sessions': '3cc7691a6a91f3a35ecb50c7896515da805985511da3797142c81fa84cd95008',
    '0009-retention-of-sessions': 'f81bd11ee304b1e02896c3a395c2ac9580168a9a34b46dfafeecc23562f88e2c',
    '0010-session-summaries': 'e0fd13bdc3ddbd96c6dafb308b0542a60cc311a91eb53b52009fdeb7418d9bfc',
    '0011-permissions': 'ca6ca40dc663847845c98f8f18fc22469bb8429ef4534d8394e31368016045f5',
    '0012-priorities-and-retries-of-jobs': '9ffa3fe5d669b71dbdcf4bc8822313ab1c987e0d86ff6ea13880fe2fe3cd20aa',
    '0013-changed-files': '60b5d8c8803cb586a49559994a09612ee0f07b436859da6f256a893acb649901',
    '0014-schedules': '214fce1066f1a959e4fce9ea887821f8ef3d7b9359ed6875a246b360e5ec9664',
    '0015-attachments': '8d2427c8d88c0b134464e6ee847fa488da0ac6968fb2a30639146bf06a6160b5',
    '0016-turns-of-messages': '63cd17e538fb56c2a1b5ed13d1b78d3c00e2fe9a7d00637d25fb77437ef3cc0c',
    '0017-modes-and-models': 'a7088fac979965fedcb829a03c9a7ab947f725a9ef520436faf02f1e02c4f8b8',
    '0018-questions-with-forms': '3f690fb023ae68840060c8f358b40a094fc55b6bbcb4371b4e3f0e6e99476457',
    '0019-members-of-teams': '936675374a3124fce603b25aa63ea1011c66381ff4f378fa48c573b3eabea6ee',
    '0020-open-permissions': 'bacdd5e87abe46ce0c27a2f9c4bd2b9798363f7cc77871b7ef3f945103c7fbe4',
    '0021-mcp-servers': '4ebf98a10ffa2570c74e021f9183fbe064b46e412b7d3ce837978f6a587375be',
    '0022-fenced-sessions': '9ed2016aa7218cdfe3e3b4e97b2b8c17225bf06955d5bb86f7ef8fb4c7319ee6',
    '0023-homes': '14277adc49fdd7d3fce9c44368bdde2784086b881a2745720504a931ee5d41f6',
    '0024-instance-reports': '7975f31ec65ba83d4f95e02290397a08b12c8e279f28f7667dd4b367db78afcd',
    '0025-runners': '1d57a1750f63d6544d43f2dfdf79b17d5b794c1d60eb4e6de01214c814c851ae',
    '0026-runners-for-one-session': '7a8cbd99fcd40ab3a676c4f4412b87bf28fc62eb8f382b7472795a7e702a6bbc',
  },
  postgres: {
    '0001-instances': '8f7adc6c3db5eb2e942d7e02d56775e8d77eb1eb429cf03b888a8eebd3e44032',
    '0002-sessions': '50f244c5a2047ecc26adb983f2c06e34c058d15d607ffebffa54c25727ae420d',
    '0003-builtin-conversations': '925e552f4fb93d17169880dd1a6d9e7fd37a3b82f5e08821def03dab1246aed0',
    '0004-artifacts': '2dbe35cf92560dca445df4f947ecf9d0c14965f48eb4a87e2ec4e0f03caeb1bc',
    '0005-jobs': 'b2a12d72411c84b3aed7b10224908e352593c4afb7c7e780f4c3f5e10294d2e3',
    '0006-session-routes': '86d2c9fd88587b3fd1b265c9e469e2e618aa8cd83d919d1a8e3421257d2491bc',
    '0007-lookups': '0a46ef6de25d5db895427982cbe5010001b373254135a499296ae6a067bd9908',
    '0008-jobs-wait-in-sessions': '2334e832cff5826e70d894e814d03172fc34f94a61d740f3fd59fceb756695e0',
    '0009-retention-of-sessions': 'f81bd11ee304b1e02896c3a395c2ac9580168a9a34b46dfafeecc23562f88e2c',
    '0010-session-summaries': 'dfff5e8d00632371d62109bd312e6657a90127347071a8bdb9accf379826e758',
    '0011-permissions': 'eaabaf4054dcf2c300337b3c4af4cd5b0597af81064fb636e9b56889757b4d98',
    '0012-priorities-and-retries-of-jobs': '7d26fee8025de5ad2238be25fea5233883db184946dd0f296bd2f0e4c050035c',
    '0013-changed-files': 'd7cf57f65a9bc7cf58d76e454d5e58c27bc5487c361833eaaf37cc16cb2b8a60',
    '0014-schedules': '9aa8e7893c7bb136b3f3c598c2c405e8b7f43c4a200b8bcd9fb0ed9f300db1db',
    '0015-attachments': '6fbd3245cc6fd25cccb34013d774211ae0ad27822bd27949e949e965b99da470',
    '0016-turns-of-messages': 'd47283a9ba99e9a20e8cf097c565d9631fbf19cb873564c88d9bcc378afa5189',
    '0017-modes-and-models': '57ee204642b66c547f96d73afdf808470292eca493ae5c4d3ed356278f26be75',
    '0018-questions-with-forms': '08290460c370e1cc442cfa41628cbd73dd81fb940d20eb0e519cce6097596d71',
    '0019-members-of-teams': '131eccf4a64c37660d10abb7186cb66acad2f089bd57d245c6544891fa461541',
    '0020-open-permissions': 'bacdd5e87abe46ce0c27a2f9c4bd2b9798363f7cc77871b7ef3f945103c7fbe4',
    '0021-mcp-servers': '94a0e7033b63e4b7edaa27e9490aa7876ae16c072f77c9c986e1f37ca8220492',
    '0022-fenced-sessions': '2e89638c2768d1bca7d046d283e86b9ec86aff1fd929ebd6f396991e876eeb64',
    '0023-homes': '23c1a79fc88a7afa05d10f892deec024c6e25165eb95d09569ecbba94612d432',
    '0024-instance-reports': '524765b05cfdf25171eb60edbfc2fad6c11849f4eca677c5c61e19aaf5078abc',
    '0025-runners': '47bf4ac15933af328c013d631e35e102113ebabc0f602703c28701e77391298f',
    '0026-runners-for-one-session': '89f0fe4d88757d3ad31972527dbac7700c18a3594c12983b06b99a3cb96e7be1',
  },
};

for (const engine of ['sqlite', 'postgres'] as const) {
  test(`O-10: released migrations still compile to the same statements on ${engine}`, () => {
    const plan = planMigrations(engine, bridgeMigrations);
    assert.deepEqual(Object.fromEntries(plan.map(({ id, checksum }) => [id, checksum])), RELEASED[engine]);
  });
}

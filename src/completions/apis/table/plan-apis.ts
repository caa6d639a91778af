import { openAiRows } from './openai-rows.ts';

/** Subscriptions: flat-rate plans with an address of their own. */
export const planApis = openAiRows([
  [
    'alibaba-coding-plan',
    'Alibaba Coding Plan',
    'https://coding-intl.dashscope.aliyuncs.com/v1',
    'ALIBABA_CODING_PLAN_API_KEY',
  ],
  [
    'alibaba-coding-plan-cn',
    'Alibaba Coding Plan (China)',
    'https://coding.dashscope.aliyuncs.com/v1',
    'ALIBABA_CODING_PLAN_API_KEY',
  ],
  [
    'alibaba-token-plan',
    'Alibaba Token Plan',
    'https://token-plan.ap-southeast-1.maas.aliyuncs.com/compatible-mode/v1',
    'ALIBABA_TOKEN_PLAN_API_KEY',
  ],
  [
    'alibaba-token-plan-cn',
    'Alibaba Token Plan (China)',
    'https://token-plan.cn-beijing.maas.aliyuncs.com/compatible-mode/v1',
    'ALIBABA_TOKEN_PLAN_API_KEY',
  ],
  ['kuae-cloud-coding-plan', 'KUAE Cloud Coding Plan', 'https://coding-plan-endpoint.kuaecloud.net/v1', 'KUAE_API_KEY'],
  ['opencode-go', 'OpenCode Go', 'https://opencode.ai/zen/go/v1', 'OPENCODE_API_KEY'],
  [
    'tencent-coding-plan',
    'Tencent Coding Plan (China)',
    'https://api.lkeap.cloud.tencent.com/coding/v3',
    'TENCENT_CODING_PLAN_API_KEY',
  ],
  ['umans-ai-coding-plan', 'Umans AI Coding Plan', 'https://api.code.umans.ai/v1', 'UMANS_AI_CODING_PLAN_API_KEY'],
  ['xiaomi-token-plan-ams', 'Xiaomi Token Plan (Europe)', 'https://token-plan-ams.xiaomimimo.com/v1', 'XIAOMI_API_KEY'],
  ['xiaomi-token-plan-cn', 'Xiaomi Token Plan (China)', 'https://token-plan-cn.xiaomimimo.com/v1', 'XIAOMI_API_KEY'],
  [
    'xiaomi-token-plan-sgp',
    'Xiaomi Token Plan (Singapore)',
    'https://token-plan-sgp.xiaomimimo.com/v1',
    'XIAOMI_API_KEY',
  ],
  ['zai-coding-plan', 'Z.AI Coding Plan', 'https://api.z.ai/api/coding/paas/v4', 'ZHIPU_API_KEY'],
  ['zhipuai-coding-plan', 'Zhipu AI Coding Plan', 'https://open.bigmodel.cn/api/coding/paas/v4', 'ZHIPU_API_KEY'],
]);
